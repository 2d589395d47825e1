"""Human Activity: lines, bins and windows by hand, every bad line, the divisions, and the facts of the real files."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from acenode.datasets import activity, files
from acenode.datasets.activity import CLASSES, FILES, VARIABLES, Activity, load, split
from acenode.datasets.activity_raw import SENSORS, read_text
from acenode.datasets.files import DataCorrupted, DataNotFound

TAGS = tuple(SENSORS)
START = 633_790_226_051_280_329


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(activity, "URL", "http://127.0.0.1:9/ConfLongDemo_JSI.txt")
    monkeypatch.delenv("ACENODE_DATA", raising=False)


def line(seconds=0.0, sensor=0, position=(1.0, 2.0, 3.0), label="walking", sequence="A01") -> str:
    ticks = START + round(seconds * 10_000_000)
    x, y, z = position
    return f"{sequence},{TAGS[sensor]},{ticks},27.05.2009 14:03:25:127,{x!r},{y!r},{z!r},{label}"


def recording(moments: int, sequence="A01", step=0.03, label="walking") -> list[str]:
    """Lines `step` seconds apart, the tags in turn; line i is at (i, 0, 0)."""
    return [line(step * i, i % 4, (float(i), 0.0, 0.0), label, sequence) for i in range(moments)]


@pytest.fixture
def made(tmp_path):
    """The data set of some lines."""

    def make(lines: list[str], **options) -> Activity:
        (tmp_path / FILES["original"]).write_text("\n".join(lines) + "\n")
        return load(tmp_path, **options)

    return make


# --- bins and windows ------------------------------------------------------------------------------------------------


def test_names():
    assert VARIABLES[:4] == ("left ankle x", "left ankle y", "left ankle z", "right ankle x")
    assert len(VARIABLES) == 12 and len(CLASSES) == 7


def test_windows_by_hand(made):
    data = made(recording(101))
    # Moments 0 to 49, 25 to 74, 50 to 99; the last needs one more moment after it, which is there.
    assert (len(data), data.series.values.shape, data.label.shape) == (3, (3, 50, 12), (3, 50))
    assert np.allclose(data.series.times, np.tile(0.03 * np.arange(50), (3, 1)), atol=1e-6)
    assert np.array_equal(data.series.length, [50, 50, 50])
    for window, first in enumerate((0, 25, 50)):
        for row in range(50):
            seen = np.flatnonzero(data.series.observed[window, row])
            sensor = (first + row) % 4
            assert seen.tolist() == [3 * sensor, 3 * sensor + 1, 3 * sensor + 2]
            assert data.series.values[window, row, 3 * sensor] == first + row
    assert (data.series.values[~data.series.observed] == 0).all()
    assert data.labelled.all() and (data.label == 0).all()
    assert data.sequence.tolist() == ["A01"] * 3 and data.person.tolist() == ["A"] * 3
    assert data.variant == "Activity (part)" and len(data.sha256) == 64


@pytest.mark.parametrize(("moments", "windows"), [(51, 1), (75, 1), (76, 2), (100, 2), (101, 3)])
def test_a_moment_follows_every_window(made, moments, windows):
    assert len(made(recording(moments))) == windows


def test_lines_of_one_bin_are_one_moment(made):
    # The bin of 0 reaches to 5 ms, the bin of 30 ms from 25 to 35 ms.
    near = [
        line(0.004, 0, (4.0, 6.0, 8.0)),
        line(0.0045, 1, (7.0, 7.0, 7.0), "falling"),
        line(0.034, 1, (3.0, 0.0, 1.0)),
    ]
    data = made(recording(60) + near)
    first = data.series.values[0]
    assert first[0, :3] == pytest.approx([2.0, 3.0, 4.0])  # the mean of (0, 0, 0) and (4, 6, 8)
    assert first[0, 3:6] == pytest.approx([7.0, 7.0, 7.0])
    assert data.series.observed[0, 0].tolist() == [True] * 6 + [False] * 6
    assert first[1, 3:6] == pytest.approx([2.0, 0.0, 0.5])
    assert data.label[0, 0] == 0  # walking and falling: the lower
    assert data.merged == 2
    assert data.reading.backwards == 1


def test_wider_bins(made):
    data = made(recording(230), bin=0.09)
    assert len(data) == 2  # 77 moments: the lines 0 and 1, then 2 to 4, 5 to 7, and so on
    assert data.series.times[0, :3] == pytest.approx([0.0, 0.09, 0.18])
    assert data.series.observed[0, :2, ::3].tolist() == [[True, True, False, False], [True, False, True, True]]
    with pytest.raises(ValueError, match="bin is 0; expected a positive number of seconds"):
        made(recording(60), bin=0)


@pytest.mark.parametrize(
    ("names", "place"),
    [
        (["walking"], 0),
        (["falling"], 1),
        (["lying", "lying down"], 2),
        (["sitting", "sitting down"], 3),
        (["standing up from lying", "standing up from sitting"], 4),
        (["standing up from sitting on the ground", "standing up from sit on grnd"], 4),
        (["on all fours"], 5),
        (["sitting on the ground"], 6),
    ],
)
def test_classes(made, names, place):
    for name in names:
        assert (made(recording(51, label=name)).label == place).all()


def test_sequences_do_not_mix(made):
    lines = recording(60, "A01") + recording(30, "B02") + recording(70, "C01", label="lying")
    data = made(lines)
    assert data.sequence.tolist() == ["A01", "C01"] and data.person.tolist() == ["A", "C"]
    assert data.short == ("B02",)
    assert np.unique(data.label[1]).tolist() == [2]
    assert data.reading.sequences == {"A01": 60, "B02": 30, "C01": 70}


def test_lines_in_any_order(made):
    lines = recording(60, "A01") + recording(60, "A02")
    shuffled = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))]
    one, two = made(lines), made(shuffled)
    order = np.argsort(two.sequence)
    assert np.array_equal(one.series.values, two.series.values[order])
    assert two.reading.backwards > 0 and two.reading.malformed == 0


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 3), st.integers(0, 6)), min_size=150, max_size=200))
def test_agrees_with_a_plain_loop(tmp_path_factory, lines):
    """`lines` are (ms, sensor, class); bins of 10 ms."""
    place = tmp_path_factory.mktemp("loop")
    names = [*CLASSES[:4], "standing up from lying", *CLASSES[5:]]
    text = [line(ms / 1000, s, (float(i), -float(i), 1.5), names[c]) for i, (ms, s, c) in enumerate(lines)]
    (place / FILES["original"]).write_text("\n".join(text))
    first = min(ms for ms, _, _ in lines)
    cells: dict = {}
    for i, (ms, s, c) in enumerate(lines):
        cells.setdefault(round((ms - first) / 10), []).append((s, i, c))
    numbers = sorted(cells)
    if len(numbers) <= 50:
        with pytest.raises(ValueError, match="no sequence has more than 50 moments"):
            load(place)
        return
    data = load(place)
    assert len(data) == len(range(0, len(numbers) - 50, 25))
    for row, number in enumerate(numbers[:50]):
        assert data.label[0, row] == min(c for _, _, c in cells[number])
        for s in range(4):
            mine = [i for sensor, i, _ in cells[number] if sensor == s]
            assert data.series.observed[0, row, 3 * s] == bool(mine)
            expected = [np.mean(mine), -np.mean(mine), 1.5] if mine else [0, 0, 0]
            assert data.series.values[0, row, 3 * s : 3 * s + 3] == pytest.approx(expected, rel=1e-6)


# --- bad lines -------------------------------------------------------------------------------------------------------

GOOD = line(1.0)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (GOOD.rpartition(",")[0], "7 fields, expected 8"),
        (GOOD[:40], "4 fields, expected 8"),
        (GOOD + ",more", "9 fields, expected 8"),
        ("nonsense", "1 fields"),
        ("\x00\x01", "1 fields"),
        (GOOD.replace("A01,", ",", 1), "no sequence is named"),
        (line(1.0).replace(str(START + 10_000_000), "soon"), "the timestamp is not a whole number"),
        (line(1.0).replace(str(START + 10_000_000), "-5"), "the timestamp is not a whole number"),
        (line(1.0).replace(str(START + 10_000_000), "1" * 25), "the timestamp is not a whole number"),
        (GOOD.replace("2.0", "two"), "a coordinate is not a finite number"),
        (GOOD.replace("2.0", ""), "a coordinate is not a finite number"),
        (GOOD.replace("2.0", "nan"), "a coordinate is not a finite number"),
        (GOOD.replace("2.0", "-inf"), "a coordinate is not a finite number"),
        (GOOD.replace("2.0", "1e99"), "a coordinate is not a finite number"),
    ],
)
def test_malformed_lines_are_counted_named_and_left_out(made, bad, why):
    lines = recording(60)
    data = made([*lines[:34], bad, *lines[34:]])
    assert np.array_equal(data.series.values, made(lines).series.values)
    assert (data.reading.lines, data.reading.kept, data.reading.malformed) == (61, 60, 1)
    assert data.reading.examples[0].startswith("line 35: ") and why in data.reading.examples[0]
    assert "malformed lines, skipped: 1" in str(data.reading)


def test_unknown_tags_are_left_out(made):
    data = made([*recording(60), line(0.5).replace(TAGS[0], "030-000-000-001"), line(0.5).replace(TAGS[0], "")])
    assert data.reading.unknown_tags == {"030-000-000-001": 1, "(blank)": 1}
    assert data.reading.malformed == 0 and data.reading.kept == 60


def test_unknown_labels_leave_the_position(made):
    lines = recording(60)
    lines[3] = lines[3].replace("walking", "dancing")
    lines[4] = lines[4].replace("walking", "")
    data = made([*lines, line(0.125, 1, label="dancing"), line(0.15, 2, label="dancing")])
    assert data.reading.unknown_labels == {"dancing": 3, "(blank)": 1}
    assert data.series.observed[0, 3].any() and data.series.observed[0, 4].any()
    assert (~data.labelled[0]).sum() == 2
    assert data.label[0, 3:7].tolist() == [-1, -1, 0, 0]
    # The other two lines fell into bins that have a label: 0.12 s has none, 0.15 s has one.
    assert data.labelled[0, 5]


def test_only_some_faults_are_shown_but_all_are_counted(made):
    data = made(recording(60) + ["nonsense"] * 20)
    assert (data.reading.malformed, len(data.reading.examples)) == (20, 5)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace(",", " , "),
        lambda text: text.rstrip("\n"),
        lambda text: "\ufeff" + text,
    ],
    ids=["windows", "blank lines", "spaces", "no last newline", "byte order mark"],
)
def test_harmless_forms(tmp_path, change):
    (tmp_path / "x.txt").write_text(change("\n".join(recording(60)) + "\n"), newline="", encoding="utf-8")
    _, reading = read_text(tmp_path / "x.txt")
    assert (reading.kept, reading.malformed) == (60, 0)


def test_a_wrong_timestamp_is_refused(made):
    lines = recording(60)
    lines[0] = lines[0].replace(str(START), "7")
    with pytest.raises(ValueError, match="A timestamp is wrong, or the bin too small"):
        made(lines)


@pytest.mark.parametrize("content", [b"", b"Date,Value\n1,2\n", b"\xff\xfe\x00"])
def test_a_file_without_positions_is_refused(tmp_path, content):
    (tmp_path / FILES["original"]).write_bytes(content)
    with pytest.raises(DataCorrupted, match="holds no positions; expected lines of sequence,tag,timestamp"):
        load(tmp_path)


def test_too_short_for_a_window(made):
    with pytest.raises(ValueError, match="no sequence has more than 50 moments"):
        made(recording(50))


# --- files -----------------------------------------------------------------------------------------------------------


def test_missing_file_says_how_to_get_it(tmp_path):
    with pytest.raises(
        DataNotFound, match=rf"ConfLongDemo_JSI.txt of the data set activity(.|\n)*by hand: download {activity.URL}"
    ):
        load(tmp_path, variant="original")
    with pytest.raises(DataNotFound, match=r"quantised.parquet of the data set activity was not found(.|\n)*by hand"):
        load(tmp_path, variant="0.1 m")
    with pytest.raises(ValueError, match="variant is '1 cm'; expected one of 'original'"):
        load(tmp_path, variant="1 cm")


def quantised(place: Path, rows: int = 60, **changes) -> Path:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "sequence": ["A01"] * rows,
        "row": list(range(rows)),
        "tag": [TAGS[i % 4] for i in range(rows)],
        "x": [0.1 * i for i in range(rows)],
        "y": [0.0] * rows,
        "z": [0.5] * rows,
        "activity": ["lying"] * rows,
        "t_recon_s": [0.027 * i for i in range(rows)],
    }
    columns = {name: column for name, column in (columns | changes).items() if column is not None}
    parquet.write_table(pyarrow.table(columns), place / FILES["0.1 m"])
    return place


def test_degraded_copy(tmp_path):
    data = load(quantised(tmp_path))
    assert data.variant == "Activity (0.1 m)"
    assert data.series.times[0, :4] == pytest.approx([0, 0.03, 0.05, 0.08])
    assert data.series.values[0, 5, 3:6] == pytest.approx([0.5, 0.0, 0.5])
    (tmp_path / FILES["original"]).write_text("\n".join(recording(60)))
    assert load(tmp_path).variant == "Activity (part)"  # the original comes first
    assert load(tmp_path, variant="0.1 m").variant == "Activity (0.1 m)"


def test_faults_of_the_degraded_copy(tmp_path):
    times = [0.027 * i for i in range(60)]
    data = load(quantised(tmp_path, t_recon_s=[*times[:57], None, float("nan"), float("inf")]))
    assert data.reading.malformed == 3
    with pytest.raises(DataCorrupted, match="has no column 'activity'"):
        load(quantised(tmp_path, activity=None))
    (tmp_path / FILES["0.1 m"]).write_bytes(b"nonsense")
    with pytest.raises(DataCorrupted, match="cannot be read as Parquet"):
        load(tmp_path)


# --- divisions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def everyone(made):
    """Two windows of each of five sequences of five people."""
    return made([each for p in "ABCDE" for i in range(1, 6) for each in recording(80, f"{p}0{i}")])


def test_a_split_by_sequence_keeps_sequences_whole(everyone):
    parts = split(everyone)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(50))
    names = [set(everyone.sequence[part]) for part in parts]
    assert [len(mine) for mine in names] == [15, 5, 5]
    assert not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]
    assert [sorted(name[0] for name in mine) for mine in names[1:]] == [list("ABCDE")] * 2
    assert not np.array_equal(parts.test, split(everyone, seed=1).test)
    assert np.array_equal(parts.test, split(everyone).test)


def test_a_split_by_window_tests_the_published_windows(everyone):
    """The first fifth of a permutation by the legacy generator with seed 42; a tenth of the others validates."""
    parts = split(everyone, by="window")
    assert [len(part) for part in parts] == [36, 4, 10]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(50))
    assert np.array_equal(parts.test, np.sort(np.random.RandomState(42).permutation(50)[:10]))


def test_bad_splits(made):
    data = made(recording(60, "A01") + recording(60, "A02"))
    with pytest.raises(ValueError, match="by is 'person'; expected 'sequence' or 'window'"):
        split(data, by="person")
    with pytest.raises(ValueError, match="there are 2 sequences; expected four or more of a person"):
        split(data)


# --- the real files --------------------------------------------------------------------------------------------------


def real(variant: str) -> Activity:
    places = [os.environ.get("ACENODE_DATA", ""), Path(__file__).resolve().parents[2].parent / "shared" / "data"]
    for place in places:
        if place and (Path(place) / "activity" / FILES[variant]).exists():
            return load(place, variant=variant)
    pytest.skip(f"{FILES[variant]} of Human Activity is neither in $ACENODE_DATA nor in ../shared/data")


@pytest.fixture(scope="module")
def degraded():
    pytest.importorskip("pyarrow")
    return real("0.1 m")


@pytest.fixture(scope="module")
def precise():
    return real("A01-A04")


def test_real_degraded_copy(degraded):
    reading = degraded.reading
    assert (reading.lines, reading.kept, len(reading.sequences)) == (activity.LINES, activity.LINES, activity.SEQUENCES)
    assert len(degraded) == 6555  # 6,554 with the true times, of which a few lines share a bin
    assert np.bincount(degraded.label.ravel()).tolist() == [63450, 5946, 121296, 57900, 45180, 10420, 23558]
    assert degraded.labelled.all() and degraded.variant == "Activity (0.1 m)"
    assert np.unique(degraded.person).tolist() == list("ABCDE")
    parts = split(degraded)
    assert [len(part) for part in parts] == [3963, 1278, 1314]


def test_real_first_four_sequences(precise):
    reading = precise.reading
    assert (reading.lines, reading.malformed, reading.backwards) == (22_249, 0, 2)
    assert reading.sequences == {"A01": 5830, "A02": 5691, "A03": 5326, "A04": 5402}
    assert len(precise) == 884 and precise.variant == "Activity (part)"
    assert np.bincount(precise.label.ravel()).tolist() == [5756, 726, 18436, 8514, 4938, 1926, 3904]
    assert precise.series.times.max() == pytest.approx(2.1, abs=0.01)


def test_real_copies_agree(degraded, precise):
    """Sequence A02 has every line in a bin of its own in both, so its windows hold the same lines."""
    one, two = (data.sequence == "A02" for data in (precise, degraded))
    first, second = precise.series[one], degraded.series[two]
    assert np.array_equal(first.observed, second.observed)
    assert np.array_equal(precise.label[one], degraded.label[two])
    away = np.abs(first.values - second.values)[first.observed]
    assert np.mean(away <= 0.1 + 1e-5) > 0.9999  # cut to tenths, but for heights like 1.3e-4, cut to 1.3
    assert np.abs(first.times - second.times).max() < 0.3
