"""The tables in short: what each is about, what was run of it, and what was found."""

from collections import Counter
from collections.abc import Sequence

from ..paper.settings import TABLE as SETTINGS
from . import page, verdict, words
from .compared import ABLATIONS, Compared
from .movement import moves, stands_still
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
        "Ways to build and train the attention, one by one, where the solved path counts: PhysioNet's extrapolation.",
    ),
    "attention-size": ("Size of attention", "Ablation: the image classifiers with a small and a large attention."),
    "attention-type": ("Kind of attention", "Ablation: the first attention from a dense layer, fixed, or evolving."),
}
ABOUT = {table: about for table, (_, about) in _TABLES.items()}
COLUMNS = ("Rows run", "The attention", "Ours against the paper")
TONES: dict[str, page.Tone] = {"better": "good", "worse": "bad", "helps": "good", "hurts": "bad", "diverges": "bad"}

_ADDED = {"attention-size": "larger: ", "attention-type": "that it evolves: "}  # what is asked, if not for any at all
_COUNTED = {
    "helps": "helps in {}",
    "hurts": "hurts in {}",
    "diverges": "makes runs of {} diverge",
    "does not help": "does not help in {}",
}
_UNCLEAR = {"no difference seen": "no difference is seen in {}", "cannot tell": "in {} the runs cannot tell"}

_ORDER = (*_COUNTED, *_UNCLEAR)


def title_of(table: str) -> str:
    return _TABLES.get(table, (table, ""))[0]


def findings(compared: dict[str, list[Compared]]) -> list[str]:
    """Over all tables that are not about the attention itself: how often it helps, and where."""
    queried = {table: lines for table, lines in compared.items() if table not in (*ABLATIONS, SETTINGS)}
    found = [(table, p) for table, lines in queried.items() for p in deciding(table, lines)]
    every = list({p.one.ours: (table, p) for table, p in reversed(found)}.values())[::-1]  # a row may be in two tables
    held, aside = ([each for each in every if each[1].alike == alike] for alike in (True, False))
    if not held:
        return ["No attentive model has been run beside the model it extends with the same settings."]
    away = [(table, p) for table, lines in queried.items() for p in explained_away(table, lines)]
    papers = [_of_the_paper(*each, each in away) for each in every if each[1].one.in_paper and _evolves(each[1])]
    known = [stands_still(p.one) for _, p in held if moves(p.one)]
    full, still = sum(not p.short for _, p in held), sum(known)
    said = [f"The paper's rows with an attention that evolves: {'; '.join(papers)}."] if papers else []
    said += [
        f"With its ablations and our own variants, in {len(held)} comparison{'s' if len(held) > 1 else ''} of an "
        f"attentive model with the one it extends, or with its control, the attention {_counted(held)}.",
        f"{full} of them had all their epochs"
        + (f"; in {still} of {len(known)} where that is known the attention stands still." if still else "."),
    ]
    if away:
        gaps = [f"{title_of(table)}: {p.one.row}, {words.gap_of_pair(p)} against the control" for table, p in away]
        said.append(f"A gain over the model it extends that its control may explain: {'; '.join(gaps)}.")
    if aside:
        said.append(f"In {len(aside)} more the rows differ in more than the attention: it {_counted(aside)}.")
    return said


def _evolves(pair: Pair) -> bool:
    return pair.one.ours[1].startswith("ACE-")


def _of_the_paper(table: str, pair: Pair, gained: bool) -> str:
    """The verdict on a row of the paper, and what to know of it."""
    notes = (
        pair.differs or ("" if pair.alike else "not with the same settings"),
        "its attention stands still" if stands_still(pair.one) else "",
    )
    name = ", ".join([title_of(table), *pair.one.row.split(", ")[1:]])
    said = f"helps, against its control {pair.effect}" if gained else pair.effect
    return f"{name}: {said}" + (f" ({', '.join(filter(None, notes))})" if any(notes) else "")


def _counted(held: Sequence[tuple[str, Pair]]) -> str:
    """How often each effect was found; where it is a change for better or worse, in which rows."""
    of = {effect: [_named(table, p) for table, p in held if p.effect == effect] for effect in _ORDER}
    named = {e: f" ({'; '.join(of[e])})" if e in ("helps", "hurts", "diverges") else "" for e in _ORDER}
    none = [] if of["helps"] else ["helps in none"]
    clear = none + [said.format(len(of[e])) + named[e] for e, said in _COUNTED.items() if of[e]]
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
    said = "; ".join(filter(None, (fair, f"not alike: {unfair}" if unfair else "")))
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
