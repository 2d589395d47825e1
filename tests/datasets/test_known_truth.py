"""Systems with known influence: their equations, their switch, what is observed of them, and that a seed decides."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from acenode.datasets import gene_regulation, kuramoto, multi_region_sir, springs
from acenode.datasets.known_truth import KnownTruth, Rows

STEP = 5e-4  # of the span


class Triples(Rows):
    """Rows close together by threes, to measure how fast the values change in the middle."""

    def times(self, samples, span, random):
        middles = (np.arange(23) + 0.5) / 23
        return np.tile(span * (middles[:, None] + STEP * np.arange(-1, 2)).ravel(), (samples, 1))


TRIPLES = Triples(context=40, query=29, noise=0.0)


class System(NamedTuple):
    generate: Callable[..., KnownTruth]
    units: int
    channels: int
    slope: Callable  # from the rows of a sample (rows, units, channels) and W, by a loop, to that of the same channels
    switches: bool


def of_kuramoto(values, weights):
    """d sin(theta)/dt = cos(theta) dtheta/dt, d cos(theta)/dt = -sin(theta) dtheta/dt."""
    sine, cosine = values[..., 0], values[..., 1]
    phase, omega = np.arctan2(sine, cosine), np.linspace(-3, 3, 5)
    turn = np.zeros_like(phase)
    for i in range(5):
        turn[:, i] = omega[i] + sum(weights[:, i, j] * np.sin(phase[:, j] - phase[:, i]) for j in range(5))
    return np.stack([cosine * turn, -sine * turn], axis=-1)


def of_bodies(values, weights, charged):
    place, out = values[..., :2], np.zeros_like(values)
    out[..., :2] = values[..., 2:]
    for i in range(5):
        for j in range(5):
            towards = place[:, j] - place[:, i]
            k = (np.sum(towards**2, -1) + 0.25) ** -1.5 if charged else np.ones(len(values))
            out[:, i, 2:] += (weights[:, i, j] * k)[:, None] * towards
    return out


def of_genes(values, weights):
    x = values[..., 0]
    out = -x
    for i in range(10):
        if not x[:, i].any():
            continue  # knocked out
        for j, sign in ((j, s) for j, target, s in gene_regulation.EDGES if target == i):
            assert (weights[:, i, j] == (2.0 * sign if x[:, j].any() else 0.0)).all()
            out[:, i] += 2.0 if sign < 0 else 0.0
            out[:, i] += weights[:, i, j] * x[:, j] ** 4 / (0.5**4 + x[:, j] ** 4)
        out[:, i] += 0.05
    return out[..., None]


def of_regions(values, weights):
    infected, recovered = values[..., 0], values[..., 1]
    new = np.zeros_like(infected)
    for i in range(6):
        contacts = sum(weights[:, i, j] * infected[:, j] for j in range(6))
        new[:, i] = 1.5 * (1 - infected - recovered)[:, i] * contacts
    return np.stack([new - 0.5 * infected, 0.5 * infected], axis=-1)


SYSTEMS = {
    "kuramoto": System(kuramoto.generate, 5, 2, of_kuramoto, True),
    "springs": System(springs.generate, 5, 4, partial(of_bodies, charged=False), False),
    "switching springs": System(
        partial(springs.generate, switches=True), 5, 4, partial(of_bodies, charged=False), True
    ),
    "charged": System(springs.charged, 5, 4, partial(of_bodies, charged=True), False),
    "genes": System(gene_regulation.generate, 10, 1, of_genes, False),
    "regions": System(multi_region_sir.generate, 6, 2, of_regions, True),
}
each_system = pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)


@each_system
def test_the_rows_follow_the_equation_with_the_stored_influence(system):
    """Central differences, away from the switch."""
    made = system.generate(samples=3, rows=TRIPLES, seed=3)
    span = made.after / 0.7
    middles = TRIPLES.times(3, span, None)[:, 1::3]
    for k in range(3):
        triples = made.truth[k].astype(np.float64).reshape(23, 3, system.units, system.channels)
        measured = (triples[:, 2] - triples[:, 0]) / (2 * STEP * span)
        later = (middles[k] >= made.switch[k]).astype(int)
        expected = system.slope(triples[:, 1], made.influence[k, [0, -1]][later].astype(np.float64))
        steady = np.abs(middles[k] - made.switch[k]) > STEP * span
        size = np.abs(expected).max()
        np.testing.assert_allclose(measured[steady], expected[steady], atol=2e-3 * size)
        if system.switches:
            other = system.slope(triples[:, 1], made.influence[k, [-1, 0]][later].astype(np.float64))
            assert np.abs(measured - other)[steady].max() > 0.05 * size  # the other graph does not fit


@each_system
def test_shapes_names_and_the_query(system):
    made = system.generate(samples=4, rows=Rows())
    series, width = made.panel.series, system.units * system.channels
    assert (len(made), made.channels, len(made.units)) == (4, system.channels, system.units)
    assert series.values.shape == made.truth.shape == (4, 65, width) and len(set(made.panel.variables)) == width
    assert made.influence.shape == (4, len(made.moments), system.units, system.units)
    assert np.isfinite(made.truth).all() and series.observed.all()
    span = made.after / 0.7
    assert (made.moments[0], made.moments[-1]) == (0, pytest.approx(span))
    query = made.query()
    assert query.context.times.shape == (4, 40) and query.times.shape == (4, 25)
    assert query.context.times.max() <= made.after < query.times.min() and query.times.max() <= span * (1 + 1e-6)
    assert len({tuple(t) for t in series.times}) == 4 and np.diff(series.times).std() > 0  # irregular
    assert made.panel.variables[0].startswith(made.units[0]) and made.panel.variables[-1].startswith(made.units[-1])


@each_system
def test_noise_is_that_of_the_context_unless_the_query_has_some(system):
    rows = Rows(noise=0.3)
    made = system.generate(samples=8, rows=rows)
    away = np.asarray(made.panel.series.values) - made.truth
    assert away[:, :40].std() == pytest.approx(0.3, rel=0.1) and np.abs(away[:, 40:]).max() < 1e-5
    noisy = system.generate(samples=8, rows=Rows(noise=0.0, query_noise=0.2))
    away = np.asarray(noisy.panel.series.values) - noisy.truth
    assert np.abs(away[:, :40]).max() < 1e-5 and away[:, 40:].std() == pytest.approx(0.2, rel=0.1)


@each_system
def test_the_seed_decides_everything(system):
    one, again, other = (system.generate(samples=2, seed=seed) for seed in (7, 7, 8))
    for get in (lambda m: m.truth, lambda m: m.influence, lambda m: m.panel.series.values, lambda m: m.switch):
        np.testing.assert_array_equal(get(one), get(again))
    assert not np.array_equal(one.truth, other.truth)


@each_system
def test_the_influence_switches_once_in_the_context_or_never(system):
    made = system.generate(samples=20)
    changes = (np.diff(made.influence, axis=1) != 0).any((2, 3))
    if not system.switches:
        assert not changes.any() and np.isinf(made.switch).all()
        return
    span = made.after / 0.7
    assert (changes.sum(1) == 1).all()
    assert (made.switch >= 0.2 * span).all() and (made.switch <= 0.4 * span).all() and np.ptp(made.switch) > 0.1 * span
    last = made.moments[np.argmax(changes, axis=1)]
    assert (last < made.switch).all() and (made.switch <= last + made.moments[1]).all()


def test_graphs_of_oscillators_are_signed_and_differ_from_sample_to_sample():
    made = kuramoto.generate(samples=50, coupling=0.7)
    assert set(np.unique(made.influence).tolist()) == {np.float32(-0.7), 0.0, np.float32(0.7)}
    assert not np.diagonal(made.influence, axis1=2, axis2=3).any()
    assert len({graph.tobytes() for graph in made.influence[:, 0]}) == 50
    off = made.influence[:, 0][:, ~np.eye(5, dtype=bool)]
    assert np.mean(off != 0) == pytest.approx(0.5, abs=0.05) and np.mean(off[off != 0] > 0) == pytest.approx(
        0.5, abs=0.1
    )


def test_oscillators_may_keep_their_graph():
    made = kuramoto.generate(samples=3, switches=False)
    assert np.isinf(made.switch).all() and not np.diff(made.influence, axis=1).any()


def test_bodies_act_on_each_other_alike_and_keep_their_momentum():
    for made in (
        springs.generate(samples=5),
        springs.generate(samples=5, switches=True),
        springs.charged(samples=5),
    ):
        np.testing.assert_array_equal(made.influence, np.swapaxes(made.influence, 2, 3))
        momentum = made.truth.reshape(5, 65, 5, 4)[..., 2:].sum(2)
        np.testing.assert_allclose(momentum, np.broadcast_to(momentum[:, :1], momentum.shape), atol=1e-4)
    assert (springs.generate(samples=5).influence >= 0).all()
    signs = np.unique(np.sign(springs.charged(samples=20).influence))
    assert signs.tolist() == [-1, 0, 1]  # attraction, none, repulsion


def test_one_gene_is_knocked_out():
    made = gene_regulation.generate(samples=30)
    silent = ~made.truth.any(axis=1)
    assert (silent.sum(axis=1) == 1).all() and len(np.unique(silent.argmax(axis=1))) > 5
    for influence, gene in zip(made.influence[:, 0], silent.argmax(axis=1), strict=True):
        assert not influence[gene].any() and not influence[:, gene].any()
        kept = np.arange(10) != gene
        np.testing.assert_array_equal(influence[np.ix_(kept, kept)], gene_regulation.GRAPH[np.ix_(kept, kept)])


def test_three_genes_that_repress_each_other_in_a_ring_oscillate():
    made = gene_regulation.generate(samples=8, span=40.0, rows=Rows(context=1, query=100))
    alive = made.truth[..., :3].any(axis=1).all(axis=1)
    late = made.truth[alive][:, 1:, :3]
    assert alive.sum() > 2 and np.ptp(late, axis=1).min() > 0.2


def test_parts_of_a_region_are_parts_and_mobility_is_of_contacts():
    made = multi_region_sir.generate(samples=10)
    infected, recovered = np.moveaxis(made.truth.reshape(10, 65, 6, 2), -1, 0)
    assert (infected >= 0).all() and (infected + recovered <= 1).all()
    assert (np.diff(recovered, axis=1) >= 0).all()
    np.testing.assert_allclose(made.influence.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.diagonal(made.influence, axis1=2, axis2=3), 0.5, rtol=1e-5)


@pytest.mark.parametrize("wrong", [{"context": 0}, {"context": 701}, {"query": 0}, {"query": 301}, {"noise": -0.1}])
def test_rows_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=rf"Rows\(.*{next(iter(wrong))}=.*needs"):
        Rows(**wrong)


@each_system
@pytest.mark.parametrize("wrong", [{"samples": 0}, {"span": 0.0}])
def test_sizes_that_cannot_be(system, wrong):
    with pytest.raises(ValueError, match=r"needs at least one sample and two units, and a positive span"):
        system.generate(**{"samples": 2, **wrong})
