"""Image classifiers: the published parameter counts, the sizes of their maps, and their parts against numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import ImageClassifier, Stem
from acenode.ode import AugmentedODE, CoEvolvingODE, Elementwise, NeuralODE, ResidualStack, Solver
from acenode.paper import images
from acenode.paper.images import SETTINGS, classifier

KEY = jax.random.key(0)
NAMES = tuple(SETTINGS)
SIZES = {"mnist": 28, "svhn": 32, "cifar10": 32}


def shapes(name: str, model: str) -> ImageClassifier:
    """A model of the comparison, with shapes in the place of its arrays."""
    return eqx.filter_eval_shape(images.models(name)[model].build, KEY)


def size(tree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.ShapeDtypeStruct))


def pictures(name: str, count: int = 3, size: int | None = None, seed: int = 0) -> jax.Array:
    size = size or SIZES[name]
    return jnp.asarray(np.random.default_rng(seed).random((count, size, size, SETTINGS[name].channels)))


def queried(model, images):
    """The shape of what a model answers."""
    return eqx.filter_eval_shape(lambda model, images: model(images), model, images)


# --- the presets ----------------------------------------------------------------------------------------------

COUNTS = {
    "ResNet": (576_778, 577_930, 577_930),
    "RKNet": (208_266, 209_418, 209_418),
    "ODE-Net": (208_266, 209_418, 209_418),
    "Augmented-ODE-Net": (220_426, 221_578, 221_578),
    "ACE-ODE-Net": (283_338, 321_418, 359_050),
    "ACE-ODE-Net (Large)": (1_271_306, 1_422_602, 1_273_610),
    "ACE-ODE-Net (as in the text)": (283_338 + 74_240 - 37_312, 321_418, 321_418),  # two convolutions in q
    # Two more layers of 65 * 9 * 64 + 64 and 2 * 64 numbers in g.
    "ACE-ODE-Net (deep g)": tuple(published + 2 * 37_632 for published in (283_338, 321_418, 359_050)),
    "ODE-Net (width 128)": (526_336 + 298_240 + 1_546, 528_640 + 298_240 + 1_546, 528_640 + 298_240 + 1_546),
    # Layers as those of a deep g, in f: 2, 3 and 4 more than ODE-Net has.
    "ODE-Net (as many weights)": (208_266 + 2 * 37_632, 209_418 + 3 * 37_632, 209_418 + 4 * 37_632),
    "ODE-Net (additive twin)": (283_338, 321_418, 359_050),  # as ACE-ODE-Net
    "ODE-Net (frozen attention)": (283_338 - 75_392, 321_418 - 75_392, 359_050 - 75_392),  # without g
}


def test_every_model_has_a_known_count():
    assert all(set(images.models(name)) == set(COUNTS) for name in NAMES)


@pytest.mark.parametrize("model", COUNTS)
def test_parameter_counts(model):
    assert tuple(size(shapes(name, model)) for name in NAMES) == COUNTS[model]


def test_the_control_has_as_many_weights_as_the_attentive_model_and_all_added_ones_are_in_f():
    for name in NAMES:
        many, plain, attentive = (shapes(name, model) for model in (images.AS_MANY, "ODE-Net", "ACE-ODE-Net"))
        assert abs(size(many) / size(attentive) - 1) < 0.003
        assert size(many) - size(plain) == size(many.ode.f) - size(plain.ode.f) > 0
        assert (many.stem, many.norm, many.linear) == (plain.stem, plain.norm, plain.linear)
        assert len(many.ode.f.convs) == SETTINGS[name].as_many and many.ode.solver == plain.ode.solver
    assert [SETTINGS[name].as_many for name in NAMES] == [4, 5, 6]


def test_the_other_controls_are_the_attentive_model_but_for_what_they_are_named_after():
    for name in NAMES:
        attentive, twin, frozen = (shapes(name, model).ode for model in ("ACE-ODE-Net", images.TWIN, images.FROZEN))
        assert eqx.tree_at(lambda ode: ode.attention, twin, attentive.attention) == attentive
        assert (frozen.f, frozen.initial, frozen.solver) == (attentive.f, attentive.initial, attentive.solver)
        np.testing.assert_array_equal(twin.attention(jnp.arange(3.0), jnp.ones(3)), [1, 2, 3])
        assert frozen.g is None and frozen.evolution == "frozen" and attentive.evolution == "evolved"


def test_parameter_counts_of_the_parts():
    plain, attentive = shapes("mnist", "ODE-Net"), shapes("mnist", "ACE-ODE-Net")
    assert (size(plain.stem), size(shapes("svhn", "ODE-Net").stem)) == (132_096, 133_248)
    assert size((plain.norm, plain.linear)) == 778
    assert size(plain.ode) == size(attentive.ode.g) == 75_392
    assert (size(attentive.ode.f), size(attentive.ode.initial)) == (37_760, 37_312)
    assert size(shapes("cifar10", "ACE-ODE-Net").ode.initial) == 74_240


def test_the_models_differ_in_their_ode_alone():
    kinds = {
        "ResNet": ResidualStack,
        "RKNet": NeuralODE,
        "ODE-Net": NeuralODE,
        "Augmented-ODE-Net": AugmentedODE,
        "ACE-ODE-Net": CoEvolvingODE,
    }
    made = {model: shapes("svhn", model) for model in kinds}
    assert {model: type(each.ode) for model, each in made.items()} == kinds
    assert all(each.stem == made["ResNet"].stem for each in made.values())
    assert made["ODE-Net"].ode.solver == made["ACE-ODE-Net"].ode.solver == made["Augmented-ODE-Net"].ode.solver
    assert made["ODE-Net"].ode.solver.method == "dopri5" and made["ODE-Net"].ode.solver.rtol == images.TOLERANCE
    assert len(made["ResNet"].ode.blocks) == 6


@pytest.mark.parametrize(
    "name, cut, side", [("mnist", 28, 6), ("svhn", 32, 8), ("cifar10", 32, 8), ("cifar10", 28, 7), ("svhn", 28, 7)]
)
def test_map_sizes(name, cut, side):
    stem = shapes(name, "ODE-Net").stem
    made = eqx.filter_eval_shape(lambda stem, image: stem(image), stem, pictures(name, size=cut)[0])
    assert made.shape == (side, side, 64)


@pytest.mark.parametrize(
    "name, model, cut, width",
    [
        ("mnist", "ResNet", 28, 64),
        ("svhn", "Augmented-ODE-Net", 32, 69),
        ("cifar10", "ACE-ODE-Net (Large)", 32, 128),
        ("cifar10", "RKNet", 28, 64),
    ],
)
def test_output_shapes(name, model, cut, width):
    verdict = queried(shapes(name, model), pictures(name, 5, cut))
    assert verdict.logits.shape == (5, 10) and verdict.features.shape == (5, width)
    assert verdict.stats.accepted.shape == (5,)


def test_the_augmented_model_reads_all_its_channels():
    model = shapes("mnist", "Augmented-ODE-Net")
    assert model.norm.affine.shape == (2, 69) and model.norm.groups == 23 and model.linear.weight.shape == (10, 69)
    assert model.stem.convs[-1].weight.shape[0] == 64 and model.ode.extra == 5
    assert all(conv.weight.shape == (69, 3, 3, 69) for conv in model.ode.f.convs)


# --- narrow ones, that are run --------------------------------------------------------------------------------

WIDTH = 4
COARSE = Solver("euler", step=0.5, max_steps=2, checkpoints=2)
TIMES = jnp.array([0.0, 0.5, 1.0])


def narrow(ode, read: int | None = None) -> ImageClassifier:
    return classifier(SETTINGS["mnist"], ode, WIDTH, read)(KEY)


follow = eqx.filter_jit(lambda model, images: model.path(images, TIMES))
classify = eqx.filter_jit(lambda model, images: model(images))
first_maps = eqx.filter_jit(lambda stem, images: jax.vmap(stem)(images))


def norm(x: np.ndarray) -> np.ndarray:
    """Group norm as it starts, of maps (batch, y, x, channels) with few channels."""
    mean, variance = x.mean(axis=(1, 2), keepdims=True), x.var(axis=(1, 2), keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


def head(model: ImageClassifier, h) -> np.ndarray:
    """GN, ReLU, average over the map, linear."""
    ensemble_task = np.maximum(norm(np.asarray(h)), 0).mean(axis=(1, 2))
    return ensemble_task @ np.asarray(model.linear.weight).T + np.asarray(model.linear.bias)


def conv(layer, x: np.ndarray) -> np.ndarray:
    """A convolution of maps (batch, y, x, channels)."""
    weight, stride, padding = np.asarray(layer.weight), layer.stride, layer.padding
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = ((n - weight.shape[1]) // stride + 1 for n in x.shape[1:3])
    out = np.zeros((len(x), rows, columns, len(weight))) + np.asarray(layer.bias)
    for i, j in np.ndindex(weight.shape[1:3]):
        seen = x[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
        out += seen[:, :rows, :columns] @ weight[:, i, j].T
    return out


def test_the_stem_is_convolutions_with_norms_between_them():
    stem, shown = Stem(1, WIDTH, padding=0, key=KEY), pictures("mnist", 2)
    x = conv(stem.convs[0], np.asarray(shown))
    for layer in stem.convs[1:]:
        x = conv(layer, np.maximum(norm(x), 0))
    assert [layer.weight.shape[1] for layer in stem.convs] == [3, 4, 4]
    assert [layer.stride for layer in stem.convs] == [1, 2, 2]
    assert [layer.padding for layer in stem.convs] == [0, 1, 1]
    np.testing.assert_allclose(first_maps(stem, shown), x, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_attention_along_the_path():
    model = narrow(images._attentive(WIDTH, COARSE, 1, 1))
    shown = pictures("mnist", 2)
    path = follow(model, shown)
    assert path.h.shape == path.a.shape == (2, 3, 6, 6, WIDTH)
    weights = np.asarray(Elementwise().weights(path.a))
    assert ((weights > 0) & (weights < 1)).all() and weights.std() > 0.05
    first = first_maps(model.stem, shown)
    np.testing.assert_allclose(path.h[:, 0], first, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(path.a[:, 0], eqx.filter_jit(model.ode.initial)(first), rtol=1e-8, atol=1e-10)
    assert np.abs(np.asarray(path.a[:, 2] - path.a[:, 0])).max() > 0.1  # it evolves


@pytest.mark.slow
def test_an_image_knows_nothing_of_its_batch_mates():
    # Adaptive, so that a batch could share its steps; the others ask for more of them, and one fails.
    model = narrow(images._attentive(WIDTH, Solver(rtol=1e-2, atol=1e-2, max_steps=16, checkpoints=16), 1, 1, g=1))
    shown = pictures("mnist")
    others = shown.at[1].multiply(1e3).at[2].set(jnp.nan)
    verdict, changed = classify(model, shown), classify(model, others)
    np.testing.assert_array_equal(verdict.logits[0], changed.logits[0])
    np.testing.assert_array_equal(verdict.stats.evaluations[0], changed.stats.evaluations[0])
    assert (np.asarray(verdict.logits[1]) != np.asarray(changed.logits[1])).all()
    np.testing.assert_array_equal(verdict.stats.failed, False)
    np.testing.assert_array_equal(changed.stats.failed, [False, False, True])
    assert np.isfinite(changed.logits).all()  # whose answer is that of a map of zeros
    np.testing.assert_allclose(changed.logits[2], model.linear.bias, rtol=1e-12)


@pytest.mark.slow
def test_rknet_takes_one_step_of_the_three_eighths_rule():
    solver = shapes("mnist", "RKNet").ode.solver
    model = narrow(images._plain(WIDTH, solver))
    shown = pictures("mnist", 2)
    verdict = classify(model, shown)
    np.testing.assert_array_equal(verdict.stats.accepted, 1)
    np.testing.assert_array_equal(verdict.stats.vjp_evaluations, 4)
    np.testing.assert_array_equal(verdict.stats.evaluations - 1, 4)  # and the slope where it ends

    @eqx.filter_jit
    def slope(t, h):
        return jax.vmap(model.ode.f, in_axes=(None, 0))(jnp.asarray(t), h)

    h = first_maps(model.stem, shown)
    one = slope(0.0, h)
    two = slope(1 / 3, h + one / 3)
    three = slope(2 / 3, h - one / 3 + two)
    four = slope(1.0, h + one - two + three)
    expected = h + (one + 3 * two + 3 * three + four) / 8
    np.testing.assert_allclose(verdict.logits, head(model, expected), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 5, 10])
def test_rknet_with_more_steps_has_room_for_them(steps):
    solver = eqx.filter_eval_shape(images.models("mnist", rk_steps=steps)["RKNet"].build, KEY).ode.solver
    field = lambda t, h: -h  # noqa: E731
    path = NeuralODE(field, solver)(jnp.ones((1, 1)), jnp.array([0.0, 1.0]))
    assert int(path.stats.accepted[0]) == steps and not path.stats.failed[0]
    np.testing.assert_allclose(
        path.h[0, 1, 0], sum((-1 / steps) ** k / f for k, f in enumerate((1, 1, 2, 6, 24))) ** steps
    )


def test_resnet_adds_its_blocks():
    model = narrow(images._residual(WIDTH))
    shown = pictures("mnist", 2)
    verdict = classify(model, shown)
    h = first_maps(model.stem, shown)
    add = eqx.filter_jit(lambda block, h: h + jax.vmap(block)(h))
    for block in model.ode.blocks:
        h = add(block, h)
    np.testing.assert_allclose(verdict.logits, head(model, h), rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(verdict.stats.evaluations, 0)
    assert len({np.asarray(block.convs[0].weight).tobytes() for block in model.ode.blocks}) == 6


def test_the_augmented_model_appends_channels_of_zeros():
    model = narrow(images._augmented(WIDTH, COARSE), read=WIDTH + 5)
    shown = pictures("mnist", 2)
    path = follow(model, shown)
    assert path.a is None and path.h.shape == (2, 3, 6, 6, WIDTH + 5)
    first = first_maps(model.stem, shown)
    np.testing.assert_allclose(path.h[:, 0, ..., :WIDTH], first, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(path.h[:, 0, ..., WIDTH:], 0.0)
    assert np.abs(path.h[:, 2, ..., WIDTH:]).min(axis=(0, 1, 2)).max() > 0  # which do not stay so
