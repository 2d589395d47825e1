"""Settings of the attention, each tried by itself; validation chooses among them.

The task is PhysioNet's extrapolation: what is scored there is the path that the attention steers. Only the setting
with the best validation score is compared with Latent-ODE, so that test records choose nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from .bayes import TEMPERATURE
from .latent import PLAIN, attentive, latent_ode, plain
from .physionet import SIZES, value_row
from .row import Row

TABLE = "attention-settings"


class Setting(NamedTuple):
    """What `attentive` gets, and what the recipe has, otherwise than in the paper's tables."""

    attention: Mapping[str, Any] = MappingProxyType({})
    recipe: Mapping[str, Any] = MappingProxyType({})


SETTINGS: dict[str, Setting] = {
    "as in the tables": Setting(),
    "the paper's gradient": Setting(recipe={"main_gradient": "paper"}),
    "joint training": Setting(recipe={"algorithm": "joint"}),
    "GRU as g": Setting({"form": "gru_linear"}),
    "GRU for each row as g": Setting({"form": "gru_rows"}),
    "queries and keys as g": Setting({"form": "query_key"}),
    "self-decay": Setting({"self_decaying": True}),
    "temperature 0.1": Setting({"temperature": TEMPERATURE}),
    "first attention learned": Setting({"initial": "dense"}),
    "conditioned": Setting({"conditioned": True}),
}


def _row(name: str, ode: Callable, setting: Setting = Setting(), base: str = "") -> Row:  # noqa: B008
    row = value_row(name, latent_ode(SIZES, ode, base=base), "extrapolation")

    def recipe(epochs: int):
        return replace(row.recipe(epochs), **setting.recipe)

    config = {**row.config, **setting.attention}
    tried = bool(setting.attention or setting.recipe)
    given = {"recipe": recipe, "config": config, "query": "", "reported": (), "candidate": tried}
    return replace(row, table=TABLE, name=name, base=base, **given)


BASE = PLAIN
ROWS = (
    _row(BASE, plain(SIZES)),
    *(
        _row(f"ACE-Latent-ODE, {name}", attentive(SIZES, **setting.attention), setting, BASE)
        for name, setting in SETTINGS.items()
    ),
)
USUAL = ROWS[1].name  # the attention of the paper's tables
PUBLISHED = tuple(("physionet-regression", f"{name}, extrapolation") for name in ("ACE-Latent-ODE (ODE Enc.)", BASE))
"""Table and name of the rows that the paper has numbers for: with that attention, and without."""
