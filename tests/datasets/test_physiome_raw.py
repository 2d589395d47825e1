"""Packed sets are made from a checkout as the benchmark does, whole or not at all."""

import numpy as np
import pytest
from physiome_sets import DECAY, checkout

from acenode.datasets import physiome, physiome_raw
from acenode.datasets.files import DataCorrupted, DataNotFound


def exact(seed: int) -> np.ndarray:
    """The series that `DECAY` has with the draws of a seed: states, constant, first moment."""
    random = np.random.RandomState(seed)
    first = [random.uniform(0.7 * value, 1.3 * value) for value in (1.0, 2.0)]
    rate = random.uniform(0.95 * 0.5, 1.05 * 0.5)
    times = np.linspace(0, 4.0, 200)
    path = np.stack([first[0] * np.exp(-rate * times), first[1] * np.exp(-2 * rate * times)], axis=1)
    begin = random.randint(0, 100)
    return path[begin : begin + 100]


def test_series_follow_their_seeds(tmp_path):
    made = physiome_raw.system(checkout(tmp_path), "DUP01")
    assert (made.span, made.states_spread, made.constants_spread, made.targets.tolist()) == (2.0, 0.3, 0.05, [0, 1])
    model = physiome_raw.load_model(made.model)
    for number in (0, 7):
        np.testing.assert_allclose(physiome_raw.solve(model, made, number), exact(number), rtol=1e-3, atol=1e-5)
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize("fault", ["raise ValueError('no')", "warnings.warn('odd')", "return [nan, nan]"])
def test_a_failed_try_is_repeated_with_the_next_seed(fault, tmp_path):
    limit = np.random.RandomState(0).uniform(0.7, 1.3)  # the first draw of seed 0; that of seed 2000 is larger
    assert limit < np.random.RandomState(2000).uniform(0.7, 1.3)
    guard = f"import warnings\n    if states[0] <= {limit!r} and voi == 0: {fault}\n    return"
    place = checkout(tmp_path, DECAY.replace("    return [-", f"    {guard} [-"))
    made = physiome_raw.system(place, "DUP01")
    found = physiome_raw.solve(physiome_raw.load_model(made.model), made, 0)
    np.testing.assert_allclose(found, exact(2000), rtol=1e-3, atol=1e-5)


def test_a_packed_set_is_scaled_and_the_same_on_many_processes(tmp_path):
    steps = []
    place = checkout(tmp_path / "checkout")
    path = physiome_raw.make(place, "DUP01", tmp_path / "one", series=12, processes=1, advance=lambda: steps.append(1))
    assert len(steps) == 12 and [p.name for p in path.parent.iterdir()] == ["DUP01.npz"]
    packed = physiome.read(path)
    assert packed.values.shape == (12, 100, 2) and packed.span == 2.0
    np.testing.assert_allclose(packed.values.mean((0, 1)), 0, atol=1e-3)
    np.testing.assert_allclose(packed.values.std((0, 1)), 1, atol=1e-3)
    both = physiome.read(physiome_raw.make(place, "DUP01", tmp_path / "two", series=12, processes=2))
    np.testing.assert_array_equal(both.values, packed.values)


def test_the_ten_channels_of_the_highest_score_are_targets(tmp_path):
    scores = [0.1 * (k * 7 % 18) for k in range(18)]
    place = checkout(tmp_path, source="", channel_scores=str(scores)).rename(tmp_path.with_name("renamed"))
    table = place / physiome_raw.LIST
    table.write_text(table.read_text().replace("dupont_1991a", "dokos_celler_lovell_1996"))
    folder = place / "models" / "calcium_dynamics"
    (folder / "dupont_1991a").rename(folder / "dokos_celler_lovell_1996")
    targets = physiome_raw.system(place, "DOK01").targets
    assert targets.tolist() == [k for k in range(18) if scores[k] > 0.75]


def test_constant_channels_are_zero():
    clean = np.random.default_rng(0).normal(size=(3, 5, 2))
    clean[..., 1] = 4.0
    assert (physiome_raw.scaled(clean)[..., 1] == 0).all()


def test_all_published_sets_are_known():
    known = physiome_raw.known()
    assert len(known) == 50 and known["LI01"].channels == 5 and max(one.channels for one in known.values()) == 56
    assert len({one.model for one in known.values()}) == 50


# --- bad checkouts ---------------------------------------------------------------------------------------------------

FAULTS = {
    "damaged": ({"T": "long"}, "Top50_final.csv: the line of dupont_1991a is damaged"),
    "no span": ({"T": "0"}, "has T 0, .* expected positive numbers"),
    "other channels": ({"channel_scores": "[1.0, 2.0, 3.0]"}, "has 3 channel scores .* DUP01 has 2 channels"),
    "other list": ({"model": "another"}, "does not list dupont_1991a, the model of DUP01"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_damaged_list_is_refused(case, tmp_path):
    changes, told = FAULTS[case]
    with pytest.raises(DataCorrupted, match=f"{tmp_path}.*{told}.*Take a fresh checkout"):
        physiome_raw.system(checkout(tmp_path, **changes), "DUP01")


def test_a_list_without_models_is_refused(tmp_path):
    table = checkout(tmp_path) / physiome_raw.LIST
    table.write_text("name\nx\n")
    with pytest.raises(DataCorrupted, match=f"{table} is not the benchmark's list of models"):
        physiome_raw.system(tmp_path, "DUP01")


def test_what_is_not_there(tmp_path):
    with pytest.raises(DataNotFound, match=f"{tmp_path} is not a checkout of the benchmark .* --from"):
        physiome_raw.system(tmp_path, "DUP01")
    place = checkout(tmp_path / "checkout")
    with pytest.raises(DataNotFound, match="no set 'DUP99' in the benchmark. There are: DUP01, "):
        physiome_raw.system(place, "DUP99")
    path = place / "models" / "calcium_dynamics" / "dupont_1991a" / "model.py"
    path.unlink()
    with pytest.raises(DataNotFound, match=f"{path} is missing: .* Take a whole checkout"):
        physiome_raw.system(place, "DUP01")


MODELS = {
    "syntax": ("def", "cannot be executed: SyntaxError"),
    "fails": ("1 / 0", "cannot be executed: ZeroDivisionError"),
    "no rates": (DECAY.replace("computeRates", "rates"), "does not define computeRates"),
    "first states": (DECAY.replace("[1.0, 2.0]", "1 / 0"), "initConsts fails with ZeroDivisionError"),
    "three states": (DECAY.replace("[1.0, 2.0]", "[1.0, 2.0, 3.0]"), "has 3 states; DUP01 has 2 channels"),
    "no solution": (DECAY.replace("-constants[0]", "1 / 0"), "series 0 could not be solved in 10 tries .*ZeroDivision"),
    "explodes": (DECAY.replace("-constants[0] * states[0]", "1e20"), "series 0 could not be solved .*too large"),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_bad_model_leaves_nothing_behind(case, tmp_path):
    model, told = MODELS[case]
    place = checkout(tmp_path / "checkout", model)
    with pytest.raises(DataCorrupted, match=f"model.py.*{told}.*fresh checkout"):
        physiome_raw.make(place, "DUP01", tmp_path / "data", series=2, processes=1)
    assert not (tmp_path / "data").exists()


def test_a_fault_in_a_worker_process_is_told(tmp_path):
    place = checkout(tmp_path / "checkout", DECAY.replace("-constants[0]", "1 / 0"))
    with pytest.raises(DataCorrupted, match="could not be solved in 10 tries"):
        physiome_raw.make(place, "DUP01", tmp_path / "data", series=2, processes=2)
    assert not (tmp_path / "data").exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    place, folder = checkout(tmp_path / "checkout"), tmp_path / "data"
    path = physiome_raw.make(place, "DUP01", folder, series=2, processes=1)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(physiome_raw.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        physiome_raw.make(place, "DUP01", folder, series=3, processes=1)
    assert path.read_bytes() == before and list(folder.iterdir()) == [path]
