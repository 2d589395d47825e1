"""Part 3: an ensemble of 64 in which one member is poisoned; the other 63 must be bit-identical to a run without it.

The poison is in the learning rate, in the data, or in the gradient of the loss. What `fit` refuses (a NaN in the data,
an infinite rate) is put in behind the check too, as a schedule or a model of one's own could.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acenode.datasets.split import Split
from acenode.train import Fit, Member, Recipe, fit

from . import samples  # noqa: F401
from .tally import Tally

from toy_task import Regression, build, pairs, same  # isort: skip

MEMBERS, OWN, VALIDATION = 64, 6, 4
RECIPE = Recipe(epochs=2, batch_size=3, optimiser="adam", eval_batch=VALIDATION, reference=4)
POISON = {"NaN": np.nan, "infinite": np.inf, "enormous": 1e30}
CODES = {name: float(k) for k, name in enumerate(POISON, 1)}


class Marked(NamedTuple):
    """Pairs, and a mark that is 0 or says which gradient a sample has."""

    x: np.ndarray
    y: np.ndarray
    mark: np.ndarray


@jax.custom_vjp
def poisoned(head, mark):
    """Zero, with the gradient that the marks say."""
    return jnp.zeros(())


def _forward(head, mark):
    return jnp.zeros(()), (head, mark)


def _backward(kept, grad):
    head, mark = kept
    factor = sum(jnp.where((mark == code).any(), POISON[name], 0.0) for name, code in CODES.items())
    return grad * factor * jnp.ones_like(head), jnp.zeros_like(mark)


poisoned.defvjp(_forward, _backward)


@dataclass(frozen=True)
class Poisonable(Regression):
    """Least squares with a poisoned gradient where samples are marked."""

    def loss(self, model, batch, key, epoch):
        value, report = super().loss(model, batch, key, epoch)
        return value + poisoned(model.head, batch.mark), report


def trained(data: Marked, members: list[Member]) -> Fit:
    """All members, each on samples of its own and validated on the same."""
    own = MEMBERS * OWN
    validation = np.arange(own, own + VALIDATION)
    folds = [Split(np.arange(OWN * k, OWN * (k + 1)), validation, np.arange(0)) for k in range(MEMBERS)]
    return fit(build, Poisonable(), data, folds, RECIPE, members)


def clean() -> tuple[Marked, list[Member]]:
    data = jax.tree.map(lambda x: x.astype(np.float32), pairs(MEMBERS * OWN + VALIDATION))
    members = [Member(seed=k, fold=k, learning_rate=1e-3 * (1 + k % 5)) for k in range(MEMBERS)]
    return Marked(data.x, data.y, np.zeros(len(data.x), np.float32)), members


def poison(place: str, name: str, k: int) -> tuple[Marked, list[Member]]:
    """The data and members with member k poisoned."""
    data, members = clean()
    rows = slice(OWN * k, OWN * (k + 1))
    if place == "learning rate":
        object.__setattr__(members[k], "learning_rate", POISON[name])  # behind the back of its check
    elif place == "data":
        data.y[rows] = POISON[name]
    else:
        data.mark[rows] = CODES[name]
    return data, members


def run(scale: float) -> dict[str, Any]:
    """Poison a member of each of 60 ensembles at scale 1."""
    tally = Tally()
    before = trained(*clean())
    random = np.random.default_rng(0)
    kinds = [(place, name) for place in ("learning rate", "data", "gradient") for name in POISON]
    for number in range(max(3, round(60 * scale))):
        place, name = kinds[number % len(kinds)] if scale >= 0.2 else kinds[(4 * number + 2) % len(kinds)]
        k = int(random.integers(MEMBERS))
        tally.add(f"{place}, {name}", _loss(before, place, name, k))
    return tally.result(members=MEMBERS)


def _loss(before: Fit, place: str, name: str, k: int) -> str | None:
    data, members = poison(place, name, k)
    if place == "data" and not np.isfinite(POISON[name]):
        try:
            trained(data, members)
            return f"{name} data were not refused"
        except ValueError as error:
            if "NaN or infinite" not in str(error):
                return f"{name} data were refused by {error}"
        data = data._replace(y=np.nan_to_num(data.y, nan=3e38, posinf=3e38))  # infinite once it is squared
    after = trained(data, members)
    changed = [j for j in range(MEMBERS) if j != k and not _equal(before, after, j)]
    if changed:
        return f"member {k} poisoned: {len(changed)} others changed, such as {changed[0]}"
    if _equal(before, after, k):
        return f"member {k} poisoned, and nothing changed"
    return None


def _equal(before: Fit, after: Fit, k: int) -> bool:
    """Whether a member has the same parameters, scores and history in every bit."""
    numbers = ("best_epoch", "best_score")
    return (
        same(before.model(k), after.model(k))
        and all(getattr(before, n)[k].tobytes() == getattr(after, n)[k].tobytes() for n in numbers)
        and all(before.history[n][:, k].tobytes() == after.history[n][:, k].tobytes() for n in before.history)
        and before.member_notes[k] == after.member_notes[k]
    )
