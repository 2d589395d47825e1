"""What a loaded data set holds: sizes, ranges, classes, and what is odd about it."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..series import Panel, Series
from .activity import Activity
from .images import ImageSet
from .physiome import LARGEST, PhysiomeSet
from .physionet import PLAUSIBLE, UNITS, PhysioNet
from .regions import Regions
from .ushcn import Climate

UNITS_OF_ELEMENTS = {"PRCP": "0.01 in", "SNOW": "0.1 in", "SNWD": "in", "TMAX": "degrees F", "TMIN": "degrees F"}


@dataclass(frozen=True)
class Variable:
    """One variable: the part of the rows in which it was observed, and its observed values (None if there are none)."""

    name: str
    unit: str
    observed: float
    low: float | None
    high: float | None
    mean: float | None


@dataclass(frozen=True)
class Facts:
    """What a data set holds.

    `rows` are the times of all series together, `observed` the part of their values that exists. `remarks` says in
    words what the loader counted, `counts` the same for programs. `sha256` has the checksums of the files, where the
    loader takes them.
    """

    samples: int
    variables: tuple[Variable, ...]
    rows: int | None = None
    observed: float | None = None
    until: float | None = None
    time_unit: str = ""
    classes: dict[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)


def of_images(images: ImageSet) -> Facts:
    channels = ("grey",) if images.pixels.shape[-1] == 1 else ("red", "green", "blue")
    planes = np.moveaxis(images.pixels, -1, 0)
    variables = [
        Variable(name, "0 to 255", 1.0, float(plane.min()), float(plane.max()), float(plane.mean()))
        for name, plane in zip(channels, planes, strict=True)
    ]
    labels, counts = np.unique(images.labels, return_counts=True)
    size = "x".join(map(str, images.pixels.shape[1:3]))
    tested = len(images) - images.training
    return Facts(
        samples=len(images),
        variables=tuple(variables),
        classes={str(label): int(count) for label, count in zip(labels, counts, strict=True)},
        remarks=(f"{images.training:,} images to train on, {tested:,} to test on, of {size} pixels",),
        counts={"training": images.training, "test": tested},
        sha256={"pixels and labels": images.sha256},
    )


def of_panel(panel: Panel, time_unit: str = "", units: dict[str, str] | None = None, **more: Any) -> Facts:
    """The facts of any named series."""
    series = panel.series
    rows = int(np.asarray(series.length).sum())
    known = units or {}
    variables = tuple(_variable(series, i, name, known.get(name, ""), rows) for i, name in enumerate(panel.variables))
    return Facts(
        samples=len(panel),
        variables=variables,
        rows=rows,
        observed=float(series.observed.sum()) / max(rows * series.variables, 1),
        until=float(series.times.max()),
        time_unit=time_unit,
        **more,
    )


def of_physionet(data: PhysioNet) -> Facts:
    """The facts of records loaded with every doubtful value kept, so that the ranges show them."""
    report = data.report
    plain = of_panel(data.panel, "hours", UNITS)
    ranges = {v.name: v for v in plain.variables}
    doubted = [
        f"  {name}: {count:,} outside {PLAUSIBLE[name][0]:g} to {PLAUSIBLE[name][1]:g}; all are from "
        f"{ranges[name].low:g} to {ranges[name].high:g}"
        for name, count in sorted(report.impossible.items(), key=lambda pair: -pair[1])
    ]
    named = ", ".join(map(str, report.only_start[:12])) + (" ..." if len(report.only_start) > 12 else "")
    remarks = (
        *str(report).splitlines(),
        *([f"the records with nothing after t=0: {named}"] if named else []),
        *(["impossible values, variable by variable, and the range of all (repeats averaged):"] if doubted else []),
        *doubted,
        "by default the loader makes sentinels and impossible values missing; clean=PUBLISHED keeps them, as here",
    )
    classes = {"died": report.died, "survived": report.labelled - report.died, "unknown": len(data) - report.labelled}
    counts = asdict(report) | {"clean": report.clean._asdict()}
    return replace(plain, classes=classes, remarks=remarks, counts=counts)


def of_activity(data: Activity) -> Facts:
    panel = Panel(data.series, np.arange(len(data)), data.variables)
    points = np.bincount(data.label[data.labelled], minlength=len(data.classes))
    classes = {name: int(count) for name, count in zip(data.classes, points, strict=True)}
    people = len(np.unique(data.person))
    remarks = (
        f"{data.variant}: {len(data):,} windows of {data.series.times.shape[1]} moments, {people} people",
        *str(data.reading).splitlines(),
        f"lines averaged with another of their bin: {data.merged:,}",
        f"sequences too short for a window: {', '.join(data.short) or 'none'}",
        f"moments without a label: {int((~data.labelled).sum()):,}",
        "windows overlap: rows, ranges and classes count most moments twice",
    )
    counts = asdict(data.reading) | {"merged": data.merged, "short": data.short, "variant": data.variant}
    return of_panel(
        panel,
        "seconds",
        dict.fromkeys(data.variables, "m"),
        classes=classes,
        remarks=remarks,
        counts=counts,
        sha256={data.reading.source: data.sha256},
    )


def of_generated(data: Any) -> Facts:
    """The facts of a data set that has a panel."""
    return of_panel(data.panel)


def of_physiome(data: PhysiomeSet) -> Facts:
    left_out = int((np.abs(data.values).max(axis=(1, 2)) > LARGEST).sum())
    remarks = (
        f"{data.name}: clean series of {data.values.shape[1]} moments, scaled; a fold adds noise and masks",
        f"channels that are scored: {', '.join(map(str, data.targets))}",
        f"series with a value beyond {LARGEST:g}, left out of every fold: {left_out:,}",
    )
    counts = {"targets": data.targets.tolist(), "left_out": left_out}
    return of_panel(data.panel, "units", remarks=remarks, counts=counts)


def of_regions(data: Regions) -> Facts:
    return of_panel(Panel(data.series, np.arange(len(data.series)), data.names))


def of_climate(data: Climate) -> Facts:
    """The values of the published file are scaled, those of raw files have units."""
    units = UNITS_OF_ELEMENTS if data.readings else dict.fromkeys(data.panel.variables, "scaled")
    skipped = data.skipped
    remarks = (
        f"{len(data):,} series of {len(np.unique(data.station)):,} stations; one time unit is 7.4508 days",
        *(line for reading in data.readings for line in str(reading).splitlines()),
        f"windows that lack a variable, left out: {len(skipped.incomplete):,}",
        f"series without rows enough on both sides of time 150, left out: {len(skipped.one_sided):,}",
    )
    counts = {name: len(each) for name, each in skipped._asdict().items()}
    counts |= {"readings": [asdict(reading) for reading in data.readings]}
    return of_panel(data.panel, "units", units, remarks=remarks, counts=counts, sha256=data.sha256)


def _variable(series: Series, place: int, name: str, unit: str, rows: int) -> Variable:
    values = np.asarray(series.values[..., place])[np.asarray(series.observed[..., place])]
    part = len(values) / max(rows, 1)
    if len(values) == 0:
        return Variable(name, unit, 0.0, None, None, None)
    return Variable(name, unit, part, float(values.min()), float(values.max()), float(values.mean(dtype=np.float64)))
