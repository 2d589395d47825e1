"""Parts of the guide that come from code and results: the models, which was best where, what attention changed."""

from pathlib import Path
from typing import Any

from acenode.paper.published import HIGHER_IS_BETTER
from acenode.paper.row import Row
from acenode.paper.tables import TABLES
from acenode.report.paper import explanation
from acenode.report.scores import Frame, metrics_of

from . import plain, put, table
from .results import compared, comparison_table, mean_of, numbers, verdict_counts

KNOWN_TRUTH = "known-truth"
ORACLE = "oracle"  # a row that is given the truth is no model to choose

#: What is predicted in each table.
TASKS = {
    "forecast, sparse": ("ushcn", "double-ou", "physiome"),
    "forecast or fill in, hospital records": ("physionet-regression",),
    "a label for each series": ("physionet-classification",),
    "a label for each time": ("activity",),
    "images": ("mnist", "svhn", "cifar10"),
    "forecast, systems of several units": (KNOWN_TRUTH,),
}


def write(docs: Path) -> None:
    """Write the parts that pages include."""
    parts = docs / "_parts"
    put(parts / "models.md", "\n".join(models()))
    put(parts / "best.md", "\n".join(best()))
    put(parts / "attention.md", "\n".join(attention()))
    put(parts / "gains.md", "\n".join(gained()))
    put(parts / "known-truth.md", "\n".join(known_truth()))
    put(parts / "forms.md", "\n".join(forms()))
    put(parts / "statuses.md", "\n".join(statuses()))
    put(parts / "defaults.md", "\n".join(defaults()))


def models() -> list[str]:
    """The models of the estimators by name."""
    from acenode.estimators.registry import MODELS

    rows = [[f"`{name}`", plain(each.description), each.attends or "no attention"] for name, each in MODELS.items()]
    return table(["`--model`", "what it is", "attends between"], rows)


def defaults() -> list[str]:
    """The default model of each estimator."""
    import inspect

    from acenode import estimators

    kinds = [v for v in vars(estimators).values() if inspect.isclass(v) and hasattr(v, "task") and hasattr(v, "fit")]
    rows = [
        [f"`{k.__name__}`", f"`--task {k.task}`", f"`{inspect.signature(k).parameters['model'].default}`"]
        for k in kinds
    ]
    return table(["estimator", "command", "default model"], rows)


def forms() -> list[str]:
    """The forms of attention that the library has."""
    import inspect

    from acenode import ode

    kinds = [v for v in vars(ode).values() if inspect.isclass(v) and issubclass(v, ode.Attention)]
    told = {k.__name__: " ".join((inspect.getdoc(k) or "").split("\n\n")[0].split()) for k in kinds[1:]}
    return table(["form", "what it does to the state"], [[f"`{name}`", words] for name, words in told.items()])


def statuses() -> list[str]:
    """How a solve may end, in the words of the solver."""
    from acenode.ode import Status

    named = Status._name_to_item  # an equinox.Enumeration tells its names nowhere else
    return table(["status", "what it says"], [[f"`{n}`", Status[getattr(Status, n)]] for n in named])


def best() -> list[str]:
    """For each table and query the row that validation prefers, among those that were trained, and its base."""
    rows = []
    for task, names in TASKS.items():
        for name in names:
            rows += [[task, *line] for line in _best_of(name)]
    heads = ["task", "data and metric", "best by validation", "its score on test data"]
    return table([*heads, "best attentive", "its score"], rows)


def _best_of(name: str) -> list[list[str]]:
    every = numbers()
    own = every[(every.table == name) & (every.seeds > 1) & (every.parameters > 0) & every.validation.notna()]
    if not len(own):
        return []
    metric = metrics_of(name)[0]
    rows = {(row.dataset, row.name): row for row in TABLES.get(name, ()) if isinstance(row, Row)}
    monitor = next((row.task.monitor for row in rows.values()), metric)
    own = own[own.metric == monitor]
    own = own[[(d, r) in rows for d, r in zip(own.dataset, own.ours_row, strict=True)]]
    own = own.assign(query=[rows[d, r].query for d, r in zip(own.dataset, own.ours_row, strict=True)])
    attentive = [bool(rows[d, r].base) for d, r in zip(own.dataset, own.ours_row, strict=True)]
    made = []
    title = explanation(name)["title"]
    own = own.assign(attentive=attentive)[own.row != ORACLE]
    if own.dataset.nunique() > 1 and own.published.notna().any():
        return _over_sets(title, name, own, monitor)
    for (query, dataset), some in own.groupby(["query", "dataset"], sort=False):
        first, ace = _first(some, monitor), _first(some[some.attentive], monitor)
        data = ", ".join(filter(None, (f"[{title}](results/{name}.md)", plain(dataset), query)))
        cells = [plain(first["row"]), _score(first)]
        cells += [plain(ace["row"]), _score(ace)] if ace else ["none", ""]
        made.append([f"{data}: {plain(monitor)}", *cells])
    return made


def _score(line: dict[str, Any]) -> str:
    return mean_of(line) + (" (not verified)" if line["unverified"] else "")


def _over_sets(title: str, name: str, some: Frame, metric: str) -> list[list[str]]:
    """One line: of the rows without and with attention, the one that is best by validation on most sets."""
    every = numbers()
    higher = metric in HIGHER_IS_BETTER
    told = every[(every.table == name) & (every.metric == metric) & every.dataset.isin(some.dataset)]
    published = told.groupby("dataset").published.max() if higher else told.groupby("dataset").published.min()

    def preferred(own: Frame) -> list[str]:
        firsts = [_first(each, metric) for _, each in own.groupby("dataset", sort=False)]
        names = [each["row"] for each in firsts if each]
        if not names:
            return ["none", ""]
        row = max(dict.fromkeys(names), key=names.count)
        mean = own[own.row == row].set_index("dataset")["mean"]
        won = (mean > published[mean.index]) if higher else (mean < published[mean.index])
        return [plain(row), f"better than the best published on {won.sum()} of {len(mean)}"]

    data = f"[{title}](results/{name}.md), {some.dataset.nunique()} sets: {plain(metric)}"
    return [[data, *preferred(some[~some.attentive]), *preferred(some[some.attentive])]]


def _first(some: Frame, metric: str) -> dict[str, Any] | None:
    whole = some[some.diverged == 0]
    ordered = whole.sort_values("validation", ascending=metric not in HIGHER_IS_BETTER)
    return ordered.iloc[0].to_dict() if len(ordered) else None


def attention() -> list[str]:
    """The verdicts on the attention, a line a table."""
    held = compared()
    rows = []
    for name, own in held[held.kind.isin(["base", "control"])].groupby("table", sort=False):
        title = f"[{explanation(str(name))['title']}](results/{name}.md)"
        rows.append([title, plain(verdict_counts(own, "base")), plain(verdict_counts(own, "control"))])
    return table(["table", "against its base", "against its controls"], rows)


def gained() -> list[str]:
    """The significant gains of an attention on test data, with the metric that chose the epoch."""
    held = compared()
    own = held[held.primary & (held.split == "test") & held.kind.isin(["base", "control"])]
    valid = own[own.verdict.isin(["significant gain", "significant loss", "no significant difference", "inconclusive"])]
    gains = valid[valid.verdict == "significant gain"]
    counts = f"Of {len(own)} comparisons {len(valid)} are valid, and {len(gains)} of these are significant gains"
    if not len(gains):
        return [f"{counts}.", ""]
    several = own.dataset.nunique() > 1
    return [f"{counts}:", "", *comparison_table(gains, several)]


def known_truth() -> list[str]:
    """Scores on systems whose influence is known, where such results exist."""
    every = numbers()
    own = every[(every.table == KNOWN_TRUTH) & (every.seeds > 0)]
    if not len(own):
        return []
    metrics = list(own.metric.unique())
    rows = []
    for (dataset, row), some in own.groupby(["dataset", "row"], sort=False):
        by = {line["metric"]: line for line in some.to_dict("records")}
        scores = [mean_of(by[m]) if m in by else "" for m in metrics]
        rows.append([plain(dataset), plain(row), f"{some.parameters.iloc[0]:,.0f}", *scores])
    parts = table(["system", "row", "parameters", *map(plain, metrics)], rows)
    held = compared()
    against = held[(held.table == KNOWN_TRUTH) & held.primary & (held.split == "test")]
    against = against[against.kind.isin(["base", "control"])]
    if len(against):
        parts += ["The attentive rows beside their base and their controls:", "", *comparison_table(against, True)]
    head = [
        "## Systems whose influence is known",
        "",
        "In these generated systems it is known who influences whom at every time, so an attention can be compared "
        "with the truth, not only by its forecasts.",
        "",
    ]
    return [*head, *parts, f"All rows and runs: [{explanation(KNOWN_TRUTH)['title']}](results/{KNOWN_TRUTH}.md).", ""]
