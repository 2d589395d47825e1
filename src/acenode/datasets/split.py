"""Divisions of a data set into training, validation and test samples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """The positions of the training, validation and test samples, each sorted; they do not overlap."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def random_split(n: int, fractions: Sequence[float | int], seed: int, stratify=None) -> Split:
    """A random division of `n` samples.

    `fractions` are those of training, validation and test, and sum to 1. With `stratify`, a label for each sample, the
    fractions hold within every label; unknown labels (NaN) are one of these.
    """
    parts_of_one = _checked_fractions(fractions)
    _check_positive("random_split: n", n)
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[], [], []]
    for members in _strata(n, stratify):
        ends = np.cumsum(_shares(len(members), parts_of_one))[:-1]
        for part, piece in zip(parts, np.split(rng.permutation(members), ends), strict=True):
            part.append(piece)
    return Split(*(np.sort(np.concatenate(part)) for part in parts))


def k_fold(n: int, folds: int, seed: int, groups=None, validation: float | int = 0) -> list[Split]:
    """`folds` divisions of `n` samples whose test samples are disjoint and together everything.

    With `groups`, a name for each sample (a person, a station), no group is on two sides of any division. `validation`
    is the part of the groups outside the test fold that is set aside for validation.
    """
    _check_positive("k_fold: n", n)
    names = np.arange(n) if groups is None else np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"k_fold: groups has shape {names.shape}; expected ({n},), one for each sample.")
    if not 0 <= validation < 1:
        raise ValueError(f"k_fold: validation is {validation}; expected a fraction in [0, 1).")
    distinct, group, sizes = np.unique(names, return_inverse=True, return_counts=True)
    if not 2 <= folds <= len(distinct):
        raise ValueError(f"k_fold: folds is {folds}; expected 2 to {len(distinct)}, the number of groups.")
    rng = np.random.default_rng(seed)
    fold_of_group = _balanced(sizes, folds, rng)
    return [_one_fold(fold_of_group == fold, group, validation, rng) for fold in range(folds)]


def _one_fold(tested: np.ndarray, group: np.ndarray, validation: float | int, rng: np.random.Generator) -> Split:
    """The division that tests the groups `tested`."""
    rest = rng.permutation(np.flatnonzero(~tested))
    held = np.zeros_like(tested)
    # At least one group remains for training.
    held[rest[: min(round(validation * len(rest)), len(rest) - 1)]] = True
    train, validated, test = (np.flatnonzero(chosen[group]) for chosen in (~tested & ~held, held, tested))
    return Split(train, validated, test)


def _balanced(sizes: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """A fold for each group, such that the folds hold about equally many samples: largest groups first."""
    shuffled = rng.permutation(len(sizes))
    fold_of_group = np.empty(len(sizes), int)
    filled = np.zeros(folds, int)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold_of_group[group] = np.argmin(filled)
        filled[fold_of_group[group]] += sizes[group]
    return fold_of_group


def _strata(n: int, stratify) -> list[np.ndarray]:
    """The positions of the samples of each label, or of all samples without labels."""
    if stratify is None:
        return [np.arange(n)]
    labels = np.asarray(stratify)
    if labels.shape != (n,):
        raise ValueError(f"random_split: stratify has shape {labels.shape}; expected ({n},), one label a sample.")
    distinct, label = np.unique(labels, return_inverse=True)
    return [np.flatnonzero(label == i) for i in range(len(distinct))]


def _shares(n: int, fractions: np.ndarray) -> np.ndarray:
    """Whole numbers near `n * fractions` that sum to `n`: the largest remainders are rounded up."""
    exact = n * fractions
    # A fraction such as 0.9 of 10 must not fall below 9 by rounding of floating-point numbers.
    shares = np.floor(exact + 1e-9).astype(int)
    short = n - shares.sum()
    shares[np.argsort(shares - exact, kind="stable")[:short]] += 1
    return shares


def _checked_fractions(fractions: Sequence[float | int]) -> np.ndarray:
    """Three fractions that sum to 1."""
    parts = np.asarray(fractions, float)
    if parts.shape != (3,) or (parts < 0).any() or not np.isclose(parts.sum(), 1):
        raise ValueError(
            f"random_split: fractions are {tuple(fractions)}; expected three parts (training, validation, test) that "
            "are not negative and sum to 1."
        )
    return parts


def _check_positive(what: str, n: int) -> None:
    if n < 1:
        raise ValueError(f"{what} is {n}; expected at least one sample.")
