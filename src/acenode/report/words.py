"""Numbers and verdicts in words, the same on the page and in README."""

import math
from collections.abc import Mapping, Sequence

from . import verdict
from .compared import Compared, digits
from .pairs import Pair

METRICS = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "silhouette": "silhouette",
    "silhouette_classes": "silhouette of the classes",
    "silhouette_maps": "silhouette of h(1)",
    "silhouette_maps_classes": "silhouette of the classes in h(1)",
    "mse": "MSE",
    "negll": "NegLL",
    "mse_per_value": "MSE per value",
    "auprc": "AUPRC",
    "calibration": "calibration error",
    "cross_entropy": "cross-entropy",
}

QUESTIONS = {
    "attention-size": "Does a larger attention help?",
    "attention-type": "Does it help that the attention evolves?",
}
ATTENTION = "Does the attention help?"


def metric(name: str) -> str:
    return METRICS.get(name, name)


def direction(name: str) -> str:
    return "higher is better" if name in verdict.HIGHER_IS_BETTER else "lower is better"


def number(value: float, places: int, sign: bool = False) -> str:
    """A number with a true minus; one of a run that diverged in powers of ten."""
    form = f".{places}f" if abs(value) < 1e5 else ".1e"
    text = f"{value:+{form}}" if sign else f"{value:{form}}"
    zero = "0" if places == 0 else "0." + "0" * places
    return zero if text in (f"-{zero}", f"+{zero}") else text.replace("-", "\N{MINUS SIGN}")


def places(line: Compared) -> int:
    """Decimal places of our own numbers: no fewer than four, no fewer than the paper's.

    Without such a number of the paper's, enough for two digits of the spread over seeds, or four of the number itself.
    """
    theirs = digits(line)
    if theirs is not None or not line.mean or line.ran_away:
        return max(4, theirs or 0)
    spread = line.sd and line.sd > 1e-9 * abs(line.mean)
    needed = 1 - math.floor(math.log10(line.sd)) if line.sd and spread else 3 - math.floor(math.log10(abs(line.mean)))
    return min(max(4, needed), 7)


def published(line: Compared) -> str:
    p = line.published
    if p is None:
        return "\N{EM DASH}"
    count = digits(line) or 0
    return number(p.mean, count) + (f" ± {number(p.sd, count)}" if p.sd is not None else "")


def validation(line: Compared) -> str:
    """The mean on validation data."""
    return number(line.validation, places(line)) if math.isfinite(line.validation) else "\N{EM DASH}"


def ours(line: Compared) -> str:
    if not line.runs:
        return "not run yet"
    if line.mean is None or line.ran_away:
        return ran_away(line) + (f", median {number(line.median, places(line))}" if math.isfinite(line.median) else "")
    spread = f" ± {number(line.sd, places(line))}" if line.sd is not None else ""
    return number(line.mean, places(line)) + spread


def ran_away(line: Compared) -> str:
    return f"{line.ran_away} of {len(line.runs)} runs diverged"


def difference(gap: verdict.Gap | None, count: int) -> str:
    """A difference and its interval."""
    if gap is None or not math.isfinite(gap.difference):
        return ""
    middle = number(gap.difference, count, sign=True)
    if gap.low is None or gap.high is None:
        return middle
    return f"{middle} [{number(gap.low, count, sign=True)}, {number(gap.high, count, sign=True)}]"


def budget(line: Compared) -> str:
    """Epochs against those of a full run."""
    if not line.trained:
        return "not trained"
    of = line.full_epochs
    return f"{line.epochs} of {of} epochs" if of and line.epochs < of else f"{line.epochs} epochs"


def size(line: Compared) -> str:
    """Seeds and epochs, against those of a full run."""
    if not line.trained:
        return f"{len(line.runs)}, not trained"
    return f"{len(line.runs)} x {budget(line).removesuffix(' epochs')}" + (", quick" if line.quick else "")


def standing(line: Compared) -> str:
    """Our runs against the paper's number, in two or three words."""
    gap = line.gap
    if line.published and line.other_protocol:
        return "not comparable: another setting"
    if gap is None:
        return "not in the paper" if line.runs else ""
    if gap.low is None:
        return "one seed: no interval" if math.isfinite(gap.difference) else ran_away(line)
    said = {"better": "better than published", "worse": "worse than published"}
    so_far = " so far" if line.short else ""
    return said.get(verdict.standing(gap, line.metric), "no difference seen") + so_far


def against_paper(line: Compared) -> str:
    """The same, and whether the budget was smaller than a full one, where that matters."""
    matters = line.quick or not line.other_protocol
    return ", ".join(filter(None, (standing(line), less(line) if matters else "")))


def less(line: Compared) -> str:
    """That the runs had less than a full budget, if they had."""
    return ("quick run " if line.quick else "") + f"after {budget(line)}" if line.short else ""


def pair(each: Pair) -> str:
    """A verdict on one row against another, in a few words."""
    return ", ".join(filter(None, (": ".join(filter(None, (each.effect, reason(each)))), fairness(each))))


def reason(each: Pair) -> str:
    """Why there is no telling, or what was ruled out."""
    gap = each.gap
    if gap is None:
        return f"{(each.other if each.one.runs else each.one).row} has not been run"
    lost = [f"{line.row}: {ran_away(line)}" for line in (each.one, each.other) if line.ran_away]
    if each.effect == "diverges":
        return lost[0] + (f"; it is worse in {each.worse} of {gap.seeds} seeds" if gap.paired else "")
    if gap.low is None or gap.high is None:
        return "; ".join(lost) or "one seed has no interval"
    if each.effect == "does not help":
        return "no difference seen, and a gain as large as the paper's is ruled out"
    if each.effect == "no difference seen":
        most = number(max(-gap.low, gap.high), places(each.one))
        return f"none larger than {most}" + ("" if each.expected is None else ", not the paper's loss")
    if each.vague:
        return "the interval is wider than the score itself"
    if each.effect == "cannot tell":
        return f"the interval holds zero and the paper's {'gain' if (each.expected or 0) > 0 else 'loss'}"
    return ""


def fairness(each: Pair) -> str:
    """Whether the two differ in the attention alone, and whether their budget was smaller than a full one of either."""
    if each.gap is None:
        return ""
    if each.differs:
        return f"not alike: {each.differs}"
    return less(each.one) or less(each.other) if each.alike else "not with the same settings"


def seeds(gap: verdict.Gap) -> str:
    return f"{'paired over' if gap.paired else 'not paired,'} {gap.seeds} seed{'s' if gap.seeds > 1 else ''}"


def gap_of_pair(each: Pair) -> str:
    return difference(each.gap, places(each.one))


def claimed(each: Pair) -> str:
    """The paper's difference between the two rows."""
    if each.claimed is None:
        return ""
    return number(verdict.gain(each.claimed, each.one.metric), digits(each.one) or 0, sign=True)


def listed(words: Sequence[str]) -> str:
    """`a, b and c`; with semicolons where a name has a comma of its own."""
    between = "; " if any("," in word for word in words) else ", "
    return words[0] if len(words) == 1 else f"{between.join(words[:-1])}{between.rstrip(', ')} and {words[-1]}"


def span(values: Sequence[int | float], style: str) -> str:
    """One value, or the least and the greatest."""
    low, high = (format(reduce(values), style) for reduce in (min, max))
    return low if low == high else f"{low} to {high}"


def settings(config: Mapping[str, object]) -> str:
    """Settings of a run; of a list only how long it is, the file has the rest."""
    known = {k: f"of {len(v)}" if isinstance(v, list) else v for k, v in sorted(config.items()) if v is not None}
    return ", ".join(f"{name} {value}" for name, value in known.items())
