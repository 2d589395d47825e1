"""How to read the numbers and verdicts: the same words on the page and in the README."""

QUESTION = "Does the attention help?"
READING = (
    "Each attentive row has one verdict: by the metric that chose its epoch, against its control (even weights in "
    "place of the attention, or as many weights without one) where that was run.",
    "Ours: mean ± standard deviation over seeds, on test data. Those chose nothing: validation data chose the epoch "
    "and, where there was a choice, the settings. Validation: the mean at that epoch, to be compared within its "
    "column. Published: as the paper prints it.",
    "Difference: ours minus published, and in brackets the interval that holds it with 95 % confidence, by Welch's t "
    "over our seeds and the five that the paper says it had; where it prints no spread, its number is taken as exact. "
    "With one seed there is no interval. All intervals are over seeds with the test data as they are (on USHCN over "
    "folds): what other test data would give is not in them.",
    "Rows against each other: where both have the same seeds (the same split, or the same fold), the differences are "
    "taken seed by seed and the interval is theirs (paired); otherwise it is Welch's.",
    "The attention helps or hurts where the interval leaves out zero. It does not help where the interval holds zero "
    "and leaves out the paper's gain, or for a row that the paper does not have, its gain in that table and metric. "
    "There is no telling where it holds both. Where there is no such gain, or data and question are not the paper's, "
    "no difference is seen. Each interval is for itself: among many, one in twenty errs. A verdict has a colour where "
    "both rows had all epochs and the same settings; learning rates that validation chose for both may differ.",
    "A run diverged if its error is a thousand times the smallest of its row, or not a number; the attention diverges "
    "where that befell runs of the attentive row alone.",
    "Protocol sound: the paper's data and question. Anything else is named, and such a number is not comparable with "
    "the published one. A quick run, or one with fewer epochs than the paper's, is marked where it stands; "
    "full runs of a row take the place of quick ones.",
)
