"""The published numbers, and what they are of."""

import csv
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files

SEEDS = 5  # of every published mean, says the paper
EPOCHS = {  # of a full run: as published, or where the publication does not say, our own
    "mnist": 160,
    "svhn": 160,
    "cifar10": 160,
    "ushcn": 300,
    "physionet-classification": 30,
    "physionet-regression": 30,
    "activity": 70,
    "physiome": 100,  # our own
}
COMPARABLE = {  # protocols with the published data and query, or with another draw of the same distribution
    "comparable",
    "regenerated SVHN, comparable",
    "Physiome-ODE, folds of our own draw",
}
UNDEFINED = {"silhouette"}  # metrics that the paper does not define: ours are not comparable
HIGHER_IS_BETTER = {
    "accuracy",
    "auc",
    "auprc",
    "edge_auc",
    "edge_auc_ahead",
    "influence_correlation",
    "silhouette",
    "silhouette_classes",
    "silhouette_maps",
    "silhouette_maps_classes",
}  # all other metrics are errors or losses


@dataclass(frozen=True)
class Published:
    """A published number. Accuracies are parts of one, squared errors as in its tables times the power it prints.

    `ours_table` and `ours_row` say under which name our runs of the same are kept.
    """

    table: str
    row: str
    metric: str
    mean: float
    sd: float | None
    parameters: str
    ours_table: str
    ours_row: str
    dataset: str = ""


@cache
def published() -> list[Published]:
    """Every number of the paper's tables, in their order."""
    text = files("acenode.paper").joinpath("published.csv").read_text(encoding="utf-8")
    return [
        Published(
            r["table"],
            r["row"],
            r["metric"],
            float(r["mean"]),
            float(r["sd"]) if r["sd"] else None,
            r["parameters"],
            r["ours_table"],
            r["ours_row"],
            r.get("dataset", ""),
        )
        for r in csv.DictReader(text.splitlines())
    ] + _of_physiome()


def _of_physiome() -> list[Published]:
    """The leaderboard of the Physiome-ODE paper."""
    text = files("acenode.paper").joinpath("physiome.csv").read_text(encoding="utf-8")
    return [
        Published(
            *("physiome", r["forecaster"], "mse", float(r["mse"]), float(r["sd"]), ""),
            "physiome",
            r["forecaster"],
            r["set"],
        )
        for r in csv.DictReader(text.splitlines())
    ]


def decimals(table: str, metric: str) -> int | None:
    """Decimal places with which the paper prints such a number, or else any of our table of that name."""
    own = [p for p in published() if p.ours_table == table]
    such = [p for p in own if p.metric == metric] or own
    numbers = [x for p in such for x in (p.mean, p.sd) if x is not None]
    return max((-int(Decimal(repr(x)).as_tuple().exponent) for x in numbers), default=None)
