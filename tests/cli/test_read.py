"""Users' files as tables: every column has the type that all its rows have, and what is written stays as written."""

import csv
import datetime as dt
import gzip
import math
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.cli.read import UnreadableFile, pivoted, read_table
from acenode.series.table import Columns, read


def written(folder: Path, *lines: str, name: str = "data.csv") -> Path:
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / name


def column(folder: Path, *cells: str) -> list:
    return read_table(written(folder, "x,y", *(f"{cell},1" for cell in cells)))["x"].to_list()


def refused(path: Path, *words: str) -> None:
    """The file is refused in one sentence that names it and says these words."""
    with pytest.raises(UnreadableFile) as caught:
        read_table(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ") and said.endswith(".") and "\n" not in said
    assert all(word in said for word in words), said


# --- types ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("early", "late", "expected"),
    [
        ("1", "2.5", (1.0, 2.5)),
        ("", "2.5", (None, 2.5)),
        ("", "p3", (None, "p3")),
        ("1", "p3", ("1", "p3")),
        ("1", "03", ("1", "03")),
        ("5", "true", ("5", "true")),
    ],
)
def test_a_type_holds_for_the_rows_of_a_large_file_too(tmp_path, early, late, expected):
    long = "x" * 50_000
    path = written(tmp_path, "id,x,note", *(f"{k},{early if k < 150 else late},{long}" for k in range(200)))
    assert path.stat().st_size > 2 * 4e6
    found = read_table(path)["x"].to_list()
    assert (found[0], found[-1]) == expected and set(found) == set(expected)


def test_usual_columns_have_their_types(tmp_path):
    table = read_table(written(tmp_path, "a,b,c,d,e", "1,0.5,true,2024-01-31,p1", " 2 ,-.5e3,FALSE,2024-02-01,p2"))
    assert table.to_dicts() == [
        {"a": 1, "b": 0.5, "c": True, "d": "2024-01-31", "e": "p1"},
        {"a": 2, "b": -500.0, "c": False, "d": "2024-02-01", "e": "p2"},
    ]


def test_values_keep_their_digits(tmp_path):
    assert column(tmp_path, "1234567890.25", "1234567891.5") == [1234567890.25, 1234567891.5]


def test_ids_are_whole_numbers_or_text(tmp_path):
    path = written(tmp_path, "id,x", "3.1,1.5", "3.10,2.5", "12E4,1", "12345678901234567890, 2", " p1 ,3")
    table = read_table(path, id="id")
    assert table["id"].to_list() == ["3.1", "3.10", "12E4", "12345678901234567890", "p1"]
    assert table["x"].to_list() == [1.5, 2.5, 1.0, 2.0, 3.0]
    assert read_table(written(tmp_path, "id,x", "2024-01-31,1"), id="id")["id"].to_list() == ["2024-01-31"]
    assert read_table(written(tmp_path, "id,x", " 7,1", "8 ,1"), id="id")["id"].to_list() == [7, 8]


def test_an_id_may_be_1_0_where_it_is_1_in_another_table(tmp_path):
    data = read_table(written(tmp_path, "id,x", "1,1", "2,2"), id="id")
    queried = read_table(written(tmp_path, "id,x", "1.0,1", "2.0,2"), id="id", like=data)
    assert queried["id"].to_list() == data["id"].to_list() == [1, 2]


def test_labels_are_trimmed_and_text_where_they_have_to_be(tmp_path):
    path = written(tmp_path, "id,state", "1,no ", "2, no", "3,yes")
    assert read_table(path, labels=["state"])["state"].to_list() == ["no", "no", "yes"]
    path = written(tmp_path, "id,state", "1,1", "2,2")
    assert read_table(path, labels=["state"])["state"].to_list() == [1, 2]
    assert read_table(path, labels=["state"], text={"state"})["state"].to_list() == ["1", "2"]


def test_leading_zeros_stay(tmp_path):
    assert column(tmp_path, "000", "0", "023") == ["000", "0", "023"]
    assert column(tmp_path, "7", "007") == ["7", "007"]
    assert column(tmp_path, "0x1F", "31") == ["0x1F", "31"]
    assert column(tmp_path, "0", "-0.5", "0.25", "0e1") == [0.0, -0.5, 0.25, 0.0]


def test_ids_are_text_where_they_are_in_the_other_table(tmp_path):
    data = read_table(written(tmp_path, "id,x", "001,1", "100,2"))
    queried = written(tmp_path, "id,x", "100,2", name="queried.csv")
    assert read_table(queried)["id"].to_list() == [100]
    assert read_table(queried, like=data).to_dicts() == [{"id": "100", "x": 2}]


# --- blanks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", ["", "NA", "null", '"NA"'])
def test_blank_ids_and_labels_are_blank(tmp_path, blank):
    assert column(tmp_path, "p1", blank) == ["p1", None]
    lines = ["id,time,x,state", "a,0,1,well", "a,1,2,well", f"b,0,1,{blank}", f"{blank},1,2,sick"]
    with pytest.raises(ValueError, match=r"'id' is blank in row 4 \(in a file, words such as NA and null are blanks"):
        read(read_table(written(tmp_path, *lines)), Columns("id", "time", ("x",), "state"))
    with pytest.raises(ValueError, match=r"'state' is blank in row 3 \(in a file, words such as NA and null are"):
        read(read_table(written(tmp_path, *lines[:-1])), Columns("id", "time", ("x",), "state"))


# --- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", ["+02:00", "+0200", "+02"])
def test_a_common_offset_is_the_zone_of_the_table(tmp_path, offset):
    lines = [f"a,2024-03-30T10:43:12{offset},1", f"a,2024-04-01T10:43:12{offset},2"]
    table = read(read_table(written(tmp_path, "id,time,x", *lines)), Columns("id", "time", ("x",)))
    assert table.clock.show(table.times[0]) == "2024-03-30 10:43:12+02:00"
    assert table.clock.read(["2024-03-30T10:43:12"], "at") == table.times[0]


def test_several_offsets_are_read_in_utc(tmp_path):
    lines = ["a,2024-03-30T10:00+01:00,1", "a,2024-04-01T10:00:00.5+02:00 ,2"]
    with pytest.warns(UserWarning, match="'time' has several offsets from UTC, such as UTC\\+01:00 and UTC\\+02:00"):
        table = read(read_table(written(tmp_path, "id,time,x", *lines)), Columns("id", "time", ("x",)))
    assert table.clock.zone == "UTC"
    assert [table.clock.show(t) for t in table.times] == [
        "2024-03-30 09:00:00+00:00",
        "2024-04-01 08:00:00.500000+00:00",
    ]


def test_an_offset_in_parquet_is_the_zone_of_the_table(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    times = pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("us", "+05:30"))
    pa.parquet.write_table(pa.table({"id": ["a", "b"], "time": times, "x": [1.0, 2.0]}), tmp_path / "data.parquet")
    frame = read_table(tmp_path / "data.parquet")
    assert frame["time"].to_list() == ["2024-01-01T05:30:00+05:30", None]
    table = read(frame[:1], Columns("id", "time", ("x",)))
    assert table.clock.zone == "+05:30" and table.clock.show(table.times[0]) == "2024-01-01 05:30:00+05:30"


# --- files ----------------------------------------------------------------------------------------------------------


def test_capitals_in_the_name_of_a_file(tmp_path):
    assert read_table(written(tmp_path, "x", "1", name="DATA.CSV")).to_dicts() == [{"x": 1}]
    packed = tmp_path / "DATA.CSV.GZ"
    packed.write_bytes(gzip.compress(b"x\n1\n"))
    assert read_table(packed).to_dicts() == [{"x": 1}]


def test_a_name_may_be_wrong_about_compression(tmp_path):
    assert read_table(written(tmp_path, "x", "1", name="data.csv.gz")).to_dicts() == [{"x": 1}]
    packed = tmp_path / "packed.csv"
    packed.write_bytes(gzip.compress(b"x\n1\n"))
    assert read_table(packed).to_dicts() == [{"x": 1}]


def test_a_torn_compressed_file(tmp_path):
    torn = tmp_path / "torn.csv.gz"
    torn.write_bytes(gzip.compress(bytes(range(48, 58)) * 1000)[:30])
    refused(torn, "could not be read as a table")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (("a,1,2", "a,2"), "line 3 has 2 cells, the first 3; give every line as many"),
        (("a,1,2", "a,2,3,4"), "line 3 has 4 cells, the first 3"),
        (('"a', 'b",1,', "a,2,3,4"), "line 4 has 4 cells"),
    ],
)
def test_ragged_lines_are_named(tmp_path, rows, says):
    refused(written(tmp_path, "id,time,x", *rows), says)


@pytest.mark.parametrize("text", ["\n", "\ufeff", "\n\nid,x\na,1\n"])
def test_a_file_without_column_names(tmp_path, text):
    (tmp_path / "data.csv").write_text(text, encoding="utf-8")
    refused(tmp_path / "data.csv", "the first line is blank; expected the names of the columns")


def test_lines_of_blanks_are_left_out(tmp_path):
    assert read_table(written(tmp_path, "id,x", "a,1", "", "b,", ",")).to_dicts() == [
        {"id": "a", "x": 1},
        {"id": "b", "x": None},
    ]


@pytest.mark.parametrize("text", ["name,temp\nJosé,1\n", "name,tempé\nJo,1\n"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_another_encoding(tmp_path, text, encoding):
    (tmp_path / "data.csv").write_text(text, encoding=encoding)
    refused(tmp_path / "data.csv", "not UTF-8; save it as UTF-8")


def test_two_columns_of_one_name(tmp_path):
    refused(written(tmp_path, "x,x", "1,a"), "two columns are named 'x'", "rename")


# --- through the command line ---------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def train(data: Path, out: Path, *more):
    return run("train", data, "--id", "id", "--time", "time", "--out", out, "--epochs", 1, "--hidden", 4, *more)


@pytest.mark.slow
def test_ids_and_times_come_back_as_they_were_written(tmp_path):
    def row(k: int, hour: int) -> str:
        return f"{k:03d},2024-03-30T{hour:02d}:15:00+02:00,{math.sin(hour + k):.3f}"

    data = written(tmp_path, "id,time,x", *(row(k, hour) for k in range(6) for hour in range(8)))
    made = train(data, tmp_path / "model", "--model", "gru-d", "--no-report")
    assert made.exit_code == 0, made.output
    done = run("predict", tmp_path / "model", data, "--at", "2024-03-30T08:30", "--out", tmp_path / "f.csv")
    assert done.exit_code == 0, done.output
    with (tmp_path / "f.csv").open() as file:
        answer = list(csv.DictReader(file))
    assert [each["id"] for each in answer] == [f"{k:03d}" for k in range(6)]
    assert {dt.datetime.fromisoformat(each["time"]).isoformat() for each in answer} == {"2024-03-30T08:30:00+02:00"}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (("id,time,x", "a,0,1", ",1,2"), "'id' is blank in row 2"),
        ((",id,time,x", "0,a,0,1", "1,a,1,2"), "column 1 has no name and may be a row number"),
        (("id,time,ward", "a,0,12", "a,1,007"), "column 'ward' holds '007' in row 2; expected numbers"),
    ],
)
def test_faults_are_said_in_one_line(tmp_path, lines, sentence):
    result = train(written(tmp_path, *lines), tmp_path / "model")
    assert result.exit_code == 1 and sentence in result.stderr, result.output
    assert len(result.stderr.strip().splitlines()) == 1


# --- separators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_cells_may_be_separated_otherwise(tmp_path, separator):
    path = written(tmp_path, separator.join(["id", '"a, b; c"', "x"]), separator.join(["p1", "2", '"1,5"']))
    table = read_table(path)
    assert table.columns == ["id", "a, b; c", "x"] and table.to_dicts() == [
        {"id": "p1", "a, b; c": 2, "x": "1,5" if separator == "," else 1.5}
    ]
    zipped = tmp_path / "data.csv.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read_table(zipped).equals(table)


def test_numbers_have_a_comma_where_cells_have_another_separator(tmp_path):
    lines = ("id;t;x;y;ward;label", "1,5;0,5;-1,25e1;3;a,1;1,5", "2,5;1,0;,5;;b;2,5")
    table = read_table(written(tmp_path, *lines), id="id", labels=["label"])
    assert table.drop("ward").to_dicts() == [
        {"id": "1,5", "t": 0.5, "x": -12.5, "y": 3, "label": "1,5"},
        {"id": "2,5", "t": 1.0, "x": 0.5, "y": None, "label": "2,5"},
    ]
    assert table["ward"].to_list() == ["a,1", "b"]  # text stays as it is
    for cells in (("a;1.234,5",), ("a;1.234", "b;7,5"), ("a;1,234,567",)):
        assert read_table(written(tmp_path, "id;x", *cells))["x"].dtype == pl.String
    with pytest.warns(UserWarning, match="in column 'x' 1,234 is taken for 1.234; if it stands for 1234, write it so"):
        read_table(written(tmp_path, "id;x", "a;1,234", "b;987"))
    assert read_table(written(tmp_path, "id;x", "a;1,234", "b;0,987", "c;3"))["x"].to_list() == [1.234, 0.987, 3]
    thousands = read_table(written(tmp_path, "id;x", "a;1.234,5"))
    assert thousands["x"].to_list() == ["1.234,5"]  # which of the two is the point is not guessed


def test_as_many_commas_in_a_name_do_not_separate(tmp_path):
    assert read_table(written(tmp_path, "id;x (a, b)", "p;1")).columns == ["id", "x (a, b)"]
    assert read_table(written(tmp_path, "alone", "1")).columns == ["alone"]


# --- long tables -----------------------------------------------------------------------------------------------------


def wide(folder: Path, *lines: str) -> list[tuple]:
    return pivoted(read_table(written(folder, "id,time,kind,x", *lines)), "id", "time", "kind", "x").rows()


def test_a_long_table_has_no_order_of_its_own(tmp_path):
    """By id, variable and time, where the variables have times of their own."""
    lines = ("b,0,v,1", "b,10,v,2", "b,9,u,3", "b,10,u,4", "a,3,u,5", "a,2,v,6")
    expected = [("b", 0, 1, None), ("b", 9, None, 3), ("b", 10, 2, 4), ("a", 2, 6, None), ("a", 3, None, 5)]
    assert wide(tmp_path, *lines) == expected
    read(pivoted(read_table(tmp_path / "data.csv"), "id", "time", "kind", "x"), Columns("id", "time", ("u", "v")))


def test_a_variable_of_words_leaves_the_numbers_of_a_long_table(tmp_path):
    table = wide(tmp_path, "a,0,pulse,70.5", "a,1,ward,ICU", "a,1,pulse,71")
    assert table == [("a", 0, 70.5, None), ("a", 1, 71.0, "ICU")]


def test_the_values_of_a_long_table_may_have_decimal_commas_beside_words(tmp_path):
    path = written(tmp_path, "id;time;kind;x", "a;0;pulse;70,5", "a;1;ward;ICU", "a;1;ok;true", "a;1;pulse;71")
    table = pivoted(read_table(path, mixed=["x"]), "id", "time", "kind", "x", text=["ok"])
    assert table.rows() == [("a", 0, 70.5, None, None), ("a", 1, 71.0, "ICU", "true")]


def test_dates_of_a_long_table_are_in_order_as_moments(tmp_path):
    lines = ("a,2024-03-31T03:30+02:00,u,1", "a,2024-03-31T00:45+01:00,v,2", "a,2024-03-31T01:30+00:00,v,3")
    with pytest.warns(UserWarning, match="several offsets"):
        assert [row[2:] for row in wide(tmp_path, *lines)] == [(None, 2), (1, 3)]  # the last is the moment of the first
    with pytest.raises(ValueError, match="'v' appears twice at id 'a', time '2024-01-01'"):
        wide(tmp_path, "a,2024-01-01,v,1", "a,2024-01-01T00:00,v,2")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("b,,u,1", "'time' is blank in row 4;"),
        (",2,u,1", "'id' is blank in row 4 "),
        ("b,2,,1", "'kind' is blank in row 4;"),
        ("b,noon,u,1", "such as 'noon' in row 4;"),
    ],
)
def test_faults_of_a_long_table_have_the_row_of_the_file(tmp_path, line, sentence):
    with pytest.raises(ValueError, match=sentence):
        wide(tmp_path, "a,0,u,1", "a,0,v,1", "a,1,u,1", line)
