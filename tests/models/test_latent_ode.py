"""`LatentODE`: what its answer depends on, and above all what it does not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from acenode.models import GRUEncoder, LatentODE
from acenode.ode import AugmentedODE, CoEvolvingODE, Correlation, MLPField, NeuralODE, Pairwise, Solver
from acenode.series import forecast, series, stack

VARIABLES, LATENT, EXTRA, ROWS, STEP = 2, 3, 2, 4, 0.25
SOLVER = Solver("rk4", step=STEP, max_steps=16, checkpoints=16)
TIMES = jnp.asarray([[0.0, 0.25, 1.0], [0.5, 0.75, 1.0], [0.1, 0.9, 2.0]])
KEY = jax.random.key(7)


def ode(kind: str, key):
    one, two = jax.random.split(key)
    if kind == "neural":
        return NeuralODE(MLPField(LATENT, 4, 1, key=one), SOLVER)
    if kind == "augmented":
        return AugmentedODE(MLPField(LATENT + EXTRA, 4, 1, key=one), EXTRA, SOLVER)
    g = MLPField(LATENT, 4, 1, out=(LATENT, LATENT), key=two)
    return CoEvolvingODE(MLPField(LATENT, 4, 1, key=one), g, Pairwise(), Correlation(LATENT), SOLVER)


def model(kind: str, samples: int) -> LatentODE:
    def make(key):
        encoder, to_latent = GRUEncoder(VARIABLES, 5, key=key), eqx.nn.Linear(5, 2 * LATENT, key=key)
        return LatentODE(encoder, to_latent, ode(kind, key), (LATENT,), samples)

    # Only the shapes are taken from it: numbers from numpy need nothing to be compiled.
    random = np.random.default_rng(1)
    fill = lambda s: jnp.asarray(0.5 * random.normal(size=s.shape))  # noqa: E731
    shapes = eqx.filter_eval_shape(make, KEY)
    return jax.tree.map(lambda s: fill(s) if isinstance(s, jax.ShapeDtypeStruct) else s, shapes)


def answer(model: LatentODE, batch, times=TIMES, key=KEY, attention=False):
    return _answer(model, jax.tree.map(jnp.asarray, batch), times, key, attention)


@eqx.filter_jit
def _answer(model, batch, times, key, attention):
    return model(batch, times, key, attention=attention)


def example(seed: int = 0, rows: int = ROWS):
    """Three series of three, four and one rows."""
    random = np.random.default_rng(seed)
    many = []
    for n in (3, 4, 1):
        times = np.sort(random.choice(np.arange(1, 20), n, replace=False)) / 10
        observed = random.random((n, VARIABLES)) < 0.7
        observed[:, 0] = True
        many.append(series(times, random.normal(size=(n, VARIABLES)), observed))
    return stack(many, rows)


@pytest.fixture(scope="module")
def co() -> LatentODE:
    return model("co-evolving", 2)


@pytest.fixture(scope="module")
def plain() -> LatentODE:
    return model("neural", 0)


def changed(batch, sample: int, by: float = 1.0):
    """The same batch with other values in one sample."""
    values = batch.values.copy()
    values[sample] += by * batch.observed[sample]
    return eqx.tree_at(lambda s: s.values, batch, values)


# --- which ODE ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind, size", [("neural", LATENT), ("augmented", LATENT + EXTRA), ("co-evolving", LATENT)])
def test_any_ode_serves(kind, size):
    trace = answer(model(kind, 2), example())
    assert trace.states.shape == (2, 3, 3, size) and trace.summary.shape == (2, 3, LATENT)
    assert trace.penalty.shape == (3,) and trace.attention is None
    assert trace.stats.failed.tolist() == [False] * 6 and np.isfinite(trace.states).all()
    assert trace.h0.shape == (6, LATENT) and trace.times.shape == (6, 4)
    begin = trace.states[:, 0, 0]  # queried at the time the latent state starts from
    np.testing.assert_allclose(begin[:, :LATENT], trace.summary[:, 0], rtol=1e-12)
    assert not np.asarray(begin[:, LATENT:]).any()
    assert not np.allclose(trace.states[:, 0, 0], trace.states[:, 0, 2])


@pytest.mark.slow
def test_attention_is_given_where_asked_for_and_changes_nothing(co):
    trace, without = answer(co, example(), attention=True), answer(co, example())
    assert trace.attention.shape == (2, 3, 3, LATENT, LATENT)
    np.testing.assert_allclose(trace.states, without.states, rtol=1e-12)
    assert not np.allclose(trace.attention[:, 0, 0], trace.attention[:, 0, 2])  # it evolves


def test_a_state_may_have_any_shape():
    class Turn(eqx.Module):
        def __call__(self, t, h):
            return jnp.stack([h[:, 1], -h[:, 0]], axis=1)

    def first(series):
        return jnp.concatenate([series.values[:, 0], 2 * series.values[:, 0]], axis=1)

    latent = LatentODE(first, lambda v: jnp.concatenate([v, v]), NeuralODE(Turn(), SOLVER), (2, 2), samples=0)
    batch = example()
    trace = answer(latent, batch)
    begin = np.concatenate([batch.values[:, 0], 2 * batch.values[:, 0]], axis=1).reshape(3, 2, 2)
    turned = np.stack([begin[..., 0] * np.cos(2.0) + begin[..., 1] * np.sin(2.0)], axis=-1)
    np.testing.assert_allclose(trace.states[0, 2, 2, :, :1], turned[2], atol=1e-3)


# --- the latent state -----------------------------------------------------------------------------------------


def test_no_samples_means_the_mean_and_no_chance(plain):
    one, two = (answer(plain, example(), key=jax.random.key(k)) for k in (0, 1))
    np.testing.assert_array_equal(one.states, two.states)
    mean, _ = posterior(plain, example())
    np.testing.assert_allclose(one.summary, mean[None], rtol=1e-12)
    assert one.states.shape[0] == 1 and not np.asarray(one.penalty).any()


def test_the_penalty_is_the_divergence_from_the_standard_normal_per_dimension(co):
    mean, sd = map(np.asarray, posterior(co, example()))
    x = np.linspace(-30, 30, 200_001)
    log_q = -0.5 * ((x - mean[..., None]) / sd[..., None]) ** 2 - np.log(sd[..., None] * np.sqrt(2 * np.pi))
    log_p = -0.5 * x**2 - 0.5 * np.log(2 * np.pi)
    by_integral = np.sum(np.exp(log_q) * (log_q - log_p), axis=-1) * (x[1] - x[0])
    closed = np.log(1 / sd) + (sd**2 + mean**2) / 2 - 0.5
    np.testing.assert_allclose(by_integral, closed, rtol=1e-6)
    np.testing.assert_allclose(answer(co, example()).penalty, closed.mean(axis=1), rtol=1e-10)


class Fixed(eqx.Module):
    """An encoder that always says the same: two means, and two standard deviations by their absolute value."""

    def __call__(self, series):
        return jnp.tile(jnp.asarray([2.0, -1.0, 0.5, -3.0]), (series.times.shape[0], 1))


class Still(eqx.Module):
    def __call__(self, t, h):
        return jnp.zeros_like(h)


def still(samples: int) -> LatentODE:
    return LatentODE(Fixed(), eqx.nn.Identity(), NeuralODE(Still(), Solver("euler", step=1.0)), (2,), samples)


def test_samples_are_drawn_from_the_posterior():
    drawn = np.asarray(answer(still(4000), example()).summary)
    assert drawn.shape == (4000, 3, 2)
    np.testing.assert_allclose(drawn.mean(axis=0), np.broadcast_to([2.0, -1.0], (3, 2)), atol=0.2)
    np.testing.assert_allclose(drawn.std(axis=0), np.broadcast_to([0.5, 3.0], (3, 2)), rtol=0.05)
    # every series and every dimension has noise of its own
    assert np.abs(np.corrcoef(drawn.reshape(4000, 6).T) - np.eye(6)).max() < 0.1


def test_the_key_decides_the_samples(co):
    one, again, other = (answer(co, example(), key=jax.random.key(k)).summary for k in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


# --- what must not matter -------------------------------------------------------------------------------------


def test_an_answer_does_not_depend_on_what_else_is_asked(plain):
    batch, whole = example(), jnp.broadcast_to(jnp.asarray([0.25, 1.0, 2.0]), (3, 3))
    other = whole.at[:, 0].set(0.75).at[:, 1].set(1.0)
    one, two = answer(plain, batch, whole).states, answer(plain, batch, other).states
    np.testing.assert_allclose(one[:, :, 1:], two[:, :, 1:], rtol=1e-12)
    twice = answer(plain, batch, whole.at[:, 0].set(1.0)).states  # the same time queried twice, as padding does
    np.testing.assert_array_equal(twice[:, :, 0], twice[:, :, 1])
    np.testing.assert_allclose(twice[:, :, 1:], one[:, :, 1:], rtol=1e-12)


def test_times_that_are_not_sorted_are_refused(plain):
    with pytest.raises(ValueError, match="times of sample 1 are not sorted"):
        plain(jax.tree.map(jnp.asarray, example()), TIMES.at[1].set(jnp.asarray([1.0, 0.5, 2.0])), KEY)


def test_no_value_after_the_known_part_has_any_influence(co):
    resting = eqx.nn.inference_mode(co)
    random = np.random.default_rng(2)
    whole = stack([series(np.arange(1, 8) / 4, random.normal(size=(7, VARIABLES))) for _ in range(3)])
    later = (whole.times > 1.0)[..., None] & whole.observed
    assert later.any() and not later.all()

    def predicted(values):
        query = forecast(eqx.tree_at(lambda s: s.values, whole, values), 1.0)
        return answer(resting, query.context, jnp.asarray(query.times[:, -3:], float)).states

    base = predicted(whole.values)
    np.testing.assert_array_equal(predicted(np.where(later, 1e3, whole.values)), base)
    assert not np.allclose(predicted(np.where(later, whole.values, 1e3)), base)


def test_batch_mates_do_not_matter_in_inference_mode(co):
    batch, resting = example(), eqx.nn.inference_mode(co)
    base = answer(resting, batch).states
    for mates in (changed(changed(batch, 1), 2, -3.0), changed(batch, 2, 1e30)):
        np.testing.assert_array_equal(answer(resting, mates).states[:, 0], base[:, 0])
    moved = answer(resting, changed(batch, 0)).states
    np.testing.assert_array_equal(moved[:, 1:], base[:, 1:])
    assert not np.allclose(moved[:, 0], base[:, 0])
    # while training, the correlation over the batch is where the attention starts, so there they do
    assert not np.array_equal(answer(co, changed(batch, 1)).states[:, 0], answer(co, batch).states[:, 0])


def test_neither_does_the_size_of_the_batch():
    whole, alone = answer(still(2), example()).summary, answer(still(2), example()[:1], TIMES[:1]).summary
    np.testing.assert_allclose(alone[:, 0], whole[:, 0], rtol=1e-12)


# --- any series -----------------------------------------------------------------------------------------------

moments = st.floats(0, 2, width=32)
numbers = st.floats(-100, 100, width=32)


@st.composite
def anything(draw):
    """The rows of three series of no to four rows each, observed anywhere or nowhere."""
    raw = []
    for _ in range(3):
        rows = draw(st.integers(0, ROWS))
        times = sorted(draw(st.lists(moments, min_size=rows, max_size=rows, unique=True)))
        values = draw(hnp.arrays(np.float32, (rows, VARIABLES), elements=numbers))
        raw.append((np.asarray(times), values, draw(hnp.arrays(bool, (rows, VARIABLES)))))
    return raw


queried = st.lists(st.lists(moments, min_size=3, max_size=3).map(sorted), min_size=3, max_size=3)


@settings(max_examples=25)
@given(raw=anything(), times=queried)
def test_any_mask_any_times_and_any_length_have_a_finite_answer_of_their_own(co, raw, times):
    resting = eqx.nn.inference_mode(co)
    batch, times = stack([series(*one) for one in raw], ROWS), jnp.asarray(times, float)
    trace = answer(resting, batch, times)
    assert np.isfinite(trace.states).all() and not np.asarray(trace.stats.failed).any()
    assert (np.asarray(trace.penalty) > -1e-9).all()
    # the second and the third trade places, and the first does not notice
    order = np.asarray([0, 2, 1])
    swapped = answer(resting, batch[order], times[order])
    np.testing.assert_array_equal(swapped.states[:, 0], trace.states[:, 0])
    np.testing.assert_array_equal(swapped.penalty[order], trace.penalty)
    # padding is nothing, and nothing is the same whenever it was seen
    mean, sd = posterior(co, batch)
    padded = posterior(co, stack([series(*one) for one in raw], ROWS + 2))
    np.testing.assert_allclose(padded, (mean, sd), rtol=1e-12)
    empty = [i for i, (_, _, observed) in enumerate(raw) if not observed.any()]
    assert all(np.array_equal(mean[i], mean[empty[0]]) for i in empty)


def posterior(model: LatentODE, batch):
    return _posterior(model, jax.tree.map(jnp.asarray, batch))


@eqx.filter_jit
def _posterior(model, batch):
    return model.posterior(batch)
