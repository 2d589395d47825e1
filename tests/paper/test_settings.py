"""The settings of the attention: each row differs from the attentive row of the tables in one thing."""

import equinox as eqx
import jax
import pytest

from acenode.ode import ConditionedMLPField, GRULinear, GRURows, MLPField, QueryKey, SelfDecay
from acenode.paper.settings import ROWS
from acenode.paper.tables import TABLES

BASE, USUAL, *OTHERS = ROWS


def ode_of(row):
    return eqx.filter_eval_shape(row.build, jax.random.key(0)).model.ode


def difference(row):
    """In which settings, and which parts of the ODE, a row is not the usual one."""
    usual, own = USUAL.settings(row.epochs), row.settings(row.epochs)
    found = {name for name in {*usual, *own} if usual.get(name) != own.get(name)}
    one, two = ode_of(USUAL), ode_of(row)
    parts = {name for name in ("f", "g", "initial", "attention") if not _alike(getattr(one, name), getattr(two, name))}
    return found - {"initial_with"}, parts  # with the paper's gradient, theta_q is not trained with f


def _alike(one, two):
    return jax.tree.structure(one) == jax.tree.structure(two) and jax.tree.leaves(one) == jax.tree.leaves(two)


EXPECTED = {
    "the paper's gradient": ({"main_gradient"}, set()),
    "joint training": ({"algorithm"}, set()),
    "GRU as g": ({"form"}, {"g"}),
    "GRU for each row as g": ({"form"}, {"g"}),
    "queries and keys as g": ({"form"}, {"g"}),
    "self-decay": ({"self_decaying"}, {"g"}),
    "temperature 0.1": ({"temperature"}, {"attention"}),
    "first attention learned": ({"initial"}, {"initial"}),
    "conditioned": ({"conditioned"}, {"f"}),
}


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_a_setting_is_one_thing(row):
    assert difference(row) == EXPECTED[row.name.removeprefix("ACE-Latent-ODE, ")]
    assert (row.base, row.epochs, row.learning_rate) == (BASE.name, BASE.epochs, BASE.learning_rate)


def test_the_parts_that_are_otherwise():
    odes = {row.name.removeprefix("ACE-Latent-ODE, "): ode_of(row) for row in ROWS[1:]}
    forms = {
        "as in the tables": MLPField,
        "GRU as g": GRULinear,
        "GRU for each row as g": GRURows,
        "self-decay": SelfDecay,
    }
    for name, kind in {**forms, "queries and keys as g": QueryKey}.items():
        assert type(odes[name].g) is kind
    assert type(odes["conditioned"].f) is ConditionedMLPField and odes["temperature 0.1"].attention.temperature == 0.1


@pytest.mark.parametrize("row", [BASE, USUAL], ids=lambda row: row.name)
def test_the_first_two_are_those_of_the_tables_but_for_their_epochs(row):
    name = f"{row.name if row is BASE else 'ACE-Latent-ODE (ODE Enc.)'}, extrapolation"
    (other,) = [each for each in TABLES["physionet-regression"] if each.name == name]
    assert row.settings(row.epochs) == other.settings(row.epochs)
    assert _alike(ode_of(row), ode_of(other))
