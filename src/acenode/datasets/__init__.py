"""The data sets, one module each, loaded when first used."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import (
        activity as activity,
        cifar10 as cifar10,
        files as files,
        gene_regulation as gene_regulation,
        images as images,
        known_truth as known_truth,
        kuramoto as kuramoto,
        mnist as mnist,
        multi_region_sir as multi_region_sir,
        ou as ou,
        physiome as physiome,
        physiome_raw as physiome_raw,
        physionet as physionet,
        regions as regions,
        split as split,
        springs as springs,
        svhn as svhn,
        ushcn as ushcn,
        ushcn_raw as ushcn_raw,
    )

__all__ = [
    "activity",
    "cifar10",
    "files",
    "gene_regulation",
    "images",
    "known_truth",
    "kuramoto",
    "mnist",
    "multi_region_sir",
    "ou",
    "physiome",
    "physiome_raw",
    "physionet",
    "regions",
    "split",
    "springs",
    "svhn",
    "ushcn",
    "ushcn_raw",
]


def __getattr__(name: str):
    # The modules import JAX, which takes a second or two: a caller that only lists data sets should not wait for it.
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
