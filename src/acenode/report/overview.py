"""The tables in short: what each is about, what was run of it, and what was found."""

from collections import Counter
from collections.abc import Sequence

from ..paper.settings import TABLE as SETTINGS
from . import page, verdict, words
from .compared import ABLATIONS, Compared
from .movement import stands_still
from .pairs import Pair, deciding, explained_away

_TABLES = {
    "mnist": ("MNIST", "Handwritten digits: the part of the test images that is classified right."),
    "svhn": ("SVHN", "House numbers: the part of the test images that is classified right."),
    "cifar10": ("CIFAR10", "Photographs of ten kinds of things: the part of the test images that is classified right."),
    "silhouette": ("Silhouette", "How clearly the features of CIFAR10 classifiers fall into clusters."),
    "ushcn": ("USHCN", "Daily climate, seen sporadically: a forecast of what is seen next."),
    "physionet-classification": ("PhysioNet mortality", "Who dies in hospital, from 48 hours of intensive care."),
    "physionet-regression": ("PhysioNet values", "Measurements of intensive care, reconstructed and forecast."),
    "activity": ("Human Activity", "What a person is doing, at each point of time, from four sensors."),
    "double-ou": ("Double Ornstein-Uhlenbeck", "A generated process whose best possible forecast is known."),
    SETTINGS: (
        "Settings of the attention",
        "What the paper leaves open, tried one by one where the path counts: PhysioNet's extrapolation.",
    ),
    "attention-size": ("Size of attention", "Ablation: the image classifiers with a small and a large attention."),
    "attention-type": ("Kind of attention", "Ablation: the first attention from a dense layer, fixed, or evolving."),
}
ABOUT = {table: about for table, (_, about) in _TABLES.items()}
COLUMNS = ("Rows run", "The attention", "Ours against the paper")
TONES: dict[str, page.Tone] = {"better": "good", "worse": "bad", "helps": "good", "hurts": "bad", "runs away": "bad"}

QUESTION = "Does the attention help?"
ANSWER = (
    "Each attentive row has one verdict: by the metric that chose its epoch, against its control (even weights in "
    "place of the attention, or as many weights without one) where that was run."
)
_ADDED = {"attention-size": "larger: ", "attention-type": "that it evolves: "}  # what is asked, if not for any at all
_COUNTED = {
    "helps": "helps in {}",
    "hurts": "hurts in {}",
    "runs away": "makes {} run away",
    "does not help": "does not help in {}",
}
_UNCLEAR = {"no difference seen": "no difference is seen in {}", "cannot tell": "in {} the runs cannot tell"}

_ORDER = (*_COUNTED, *_UNCLEAR)


def title_of(table: str) -> str:
    return _TABLES.get(table, (table, ""))[0]


def findings(compared: dict[str, list[Compared]]) -> list[str]:
    """Over all tables that are not about the attention itself: how often it helps, and where."""
    asked = {table: lines for table, lines in compared.items() if table not in (*ABLATIONS, SETTINGS)}
    found = [(table, p) for table, lines in asked.items() for p in deciding(table, lines)]
    every = list({p.one.ours: (table, p) for table, p in reversed(found)}.values())[::-1]  # a row may be in two tables
    held, aside = ([each for each in every if each[1].alike == alike] for alike in (True, False))
    if not held:
        return ["No attentive model has been run beside the model it extends with the same settings."]
    times = f"{len(held)} comparison{'s' if len(held) > 1 else ''}"
    full, still = sum(not p.short for _, p in held), sum(stands_still(p.one) for _, p in held)
    away = [f"{title_of(table)}: {p.one.row}" for table, lines in asked.items() for p in explained_away(table, lines)]
    said = [
        f"In {times} of an attentive model with the one it extends, trained alike, the attention {_counted(held)}.",
        f"{full} of them had all their epochs"
        + (f"; in {still} the attention stands still, which tells nothing of one that moves." if still else "."),
    ]
    if away:
        said.append(
            f"Better than the model it extends, but as far as the runs tell not than its control: {'; '.join(away)}."
        )
    if aside:
        said.append(f"In {len(aside)} more, not trained alike, it {_counted(aside)}.")
    return said


def _counted(held: Sequence[tuple[str, Pair]]) -> str:
    """How often each effect was found; where it is a change for better or worse, in which rows."""
    of = {effect: [_named(table, p) for table, p in held if p.effect == effect] for effect in _ORDER}
    named = {e: f" ({'; '.join(of[e])})" if e in ("helps", "hurts", "runs away") else "" for e in _ORDER}
    clear = [said.format(len(of[e])) + named[e] for e, said in _COUNTED.items() if of[e]] or ["helps in none"]
    unclear = [said.format(len(of[e])) for e, said in _UNCLEAR.items() if of[e]]
    return "; ".join([", ".join(clear[:-1]) + " and " * (len(clear) > 1) + clear[-1], *unclear])


def _named(table: str, pair: Pair) -> str:
    doubted = pair.effect == "helps" and pair.uncontrolled
    return f"{title_of(table)}: {pair.one.row}" + (", its control not run" if doubted else "")


def overview(table: str, lines: Sequence[Compared]) -> list[page.Cell]:
    """A table in the words of `COLUMNS`."""
    own = [line for line in lines if line.runs]
    if not own:
        return [page.Cell("not run yet", "soft"), page.Cell(""), page.Cell("")]
    return [_count(lines), _effects(table, lines), _standings(own)]


def _count(lines: Sequence[Compared]) -> page.Cell:
    """How many of the paper's rows were run, and how many others."""
    theirs = {line.row for line in lines if line.published}
    run = {line.row for line in lines if line.runs}
    more = f", {len(run - theirs)} not in the paper" if run - theirs else ""
    return page.Cell(f"{len(run & theirs)} of {len(theirs)}{more}" if theirs else f"{len(run)}, not in the paper")


def _effects(table: str, lines: Sequence[Compared]) -> page.Cell:
    held = deciding(table, lines)
    if not held:
        return page.Cell("")
    first = pair_tone(held[0])
    tone = first if all(pair_tone(p) == first for p in held) else ""
    fair, unfair = (_tallied([p for p in held if p.alike == alike]) for alike in (True, False))
    said = "; ".join(filter(None, (fair, f"not trained alike: {unfair}" if unfair else "")))
    return page.Cell(_ADDED.get(table, "") + said, tone)


def _tallied(held: Sequence[Pair]) -> str:
    count = Counter(p.effect for p in held)
    return ", ".join(e if n == len(held) else f"{e} ({n})" for e, n in count.items())


def pair_tone(pair: Pair) -> page.Tone:
    """A verdict has a colour where both rows had the same chance, and all their epochs."""
    return TONES.get(pair.effect, "") if pair.alike and not pair.short else ""


def _standings(lines: Sequence[Compared]) -> page.Cell:
    gaps = [(line.gap, line.metric) for line in lines if line.gap]
    count = Counter(verdict.standing(gap, metric) for gap, metric in gaps)
    said = {"better": "better", "worse": "worse", "level": "no difference seen", "unknown": "no interval"}
    short = [line for line in lines if line.short and line.in_paper]
    marks = []
    if short:
        full = words.span([line.full_epochs or 0 for line in short], "d")
        marks.append(f"after {words.span([line.epochs for line in short], 'd')} of {full} epochs")
    away = [bool(line.other_protocol) for line in lines if line.published]
    if any(away):
        marks.append("not the paper's setting" if all(away) else "some not the paper's setting")
    return page.Cell("; ".join([", ".join(f"{n} {said[s]}" for s, n in count.items()), *marks]).strip("; "))
