"""Tables from files: CSV (read in blocks) and Parquet."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK = 1 << 22  # bytes
_CODE = r"^[+-]?0[0-9xX][0-9a-fA-F]*$"  # 007 is a code and not the number 7
_COMMA = r"^(\s*[+-]?\d*),(\d+(?:[eE][+-]?\d+)?\s*)$"  # 1,5
_OFFSET = r"(?P<offset>Z|[+-]\d\d(?::?\d\d)?)$"
_NOT_UTF_8 = "{}: the text of the file is not UTF-8; save it as UTF-8."


class UnreadableFile(ValueError):
    """The file is not there or not a table; the message says which and what to do."""


def read_table(
    path: Path, id: str | None = None, label: str | None = None, text: Collection[str] = (), like: Any = None
) -> Any:
    """A pyarrow table from a `.csv` (also `.csv.gz`) or `.parquet` file.

    Cells of a CSV are separated by commas, semicolons or tabs: whatever its first line has most of. Where they are not
    separated by commas, 1,5 is the number 1.5. A column has the narrowest type that holds all its rows, so the file is
    read twice. Blank cells and words such as NA, N/A, NaN and null are blanks, in columns of text too. Where a number
    has a leading zero, as in 007, the column is text. Times are in their common offset from UTC, such as +02:00, or in
    UTC if they have several.

    **Arguments:**

    - `path`: the file.
    - `id`: the column of a CSV that names the series: whole numbers or text, as 3.1 and 3.10 are not the same. Spaces
        around its texts, and those of `label`, do not count.
    - `label`: the column of labels.
    - `text`: columns that are text, whatever they hold.
    - `like`: a table read before; what is text there is text here, so that ids can be compared.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UnreadableFile("reading files needs pyarrow; install it with: pip install 'acenode[data]'") from error

    if not path.is_file():
        raise UnreadableFile(f"{path}: there is no such file.")
    if path.stat().st_size == 0:
        raise UnreadableFile(f"{path}: the file is empty; expected a line of column names and rows below it.")
    name = path.name.lower()
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        raise UnreadableFile(f"{path}: expected a file that ends with .csv, .csv.gz or .parquet.")
    try:
        if name.endswith(".parquet"):
            return parquet.read_table(path)
        _check_start(path)
        return _read_csv(path, id, label, text, like)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeDecodeError) as error:
        fault = str(error).splitlines()[0]
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in fault:
            raise UnreadableFile(_NOT_UTF_8.format(path)) from error
        raise UnreadableFile(
            f"{path}: the file could not be read as a table ({fault}); correct or remove it."
        ) from error


def _check_start(path: Path) -> None:
    """The first bytes of a file say whether it is compressed, which its name has to say too, or UTF-16."""
    with path.open("rb") as file:
        start = file.read(2)
    if start in (b"\xff\xfe", b"\xfe\xff"):
        raise UnreadableFile(_NOT_UTF_8.format(path))
    named, compressed = path.name.lower().endswith(".gz"), start == b"\x1f\x8b"
    if named and not compressed:
        raise UnreadableFile(
            f"{path}: the name says that the file is compressed, and it is not; rename it to end with .csv."
        )
    if compressed and not named:
        raise UnreadableFile(f"{path}: the file is compressed; rename it to end with .csv.gz.")


def _read_csv(path: Path, id: str | None, label: str | None, text: Collection[str], like: Any) -> Any:
    """A first pass finds the types, a second one converts: the text of all rows may not fit into memory."""
    import pyarrow as pa

    names = _names(path)
    as_text = set(text)
    if like is not None:
        words = (pa.types.is_dictionary, pa.types.is_string, pa.types.is_large_string)
        as_text |= {each.name for each in like.schema if any(holds(each.type) for holds in words)}
    columns = [_Column(_kinds()[-1:]) if name in as_text else _Column() for name in names]
    numbers = like is not None and id in like.schema.names and not pa.types.is_dictionary(like.schema.field(id).type)
    for name, column in zip(names, columns, strict=True):
        if name == id and not numbers:  # else 1.0 may be 1, as pandas writes it beside blanks
            column.kinds = [kind for kind in column.kinds if kind in (pa.int64(), pa.string())]
    worded = {id, label, *as_text}
    for block in _text_blocks(path, names, worded):
        for column, cells in zip(columns, block.columns, strict=True):
            column.see(cells)
    kinds = [column.kind for column in columns]

    def packed(name: str, cells: Any, kind: Any) -> Any:
        if kind == pa.string() and name not in (id, label):
            return cells.dictionary_encode()
        trimmed = _compute().ascii_trim_whitespace(cells)
        # Each text once: an id stands in all rows of its series.
        return trimmed.dictionary_encode() if kind == pa.string() else trimmed.cast(kind)

    blocks = [
        pa.RecordBatch.from_arrays([packed(*each) for each in zip(names, block.columns, kinds, strict=True)], names)
        for block in _text_blocks(path, names, worded)
    ]
    schema = None if blocks else pa.schema(list(zip(names, kinds, strict=True)))
    return pa.Table.from_batches(blocks, schema).unify_dictionaries()


def _names(path: Path) -> list[str]:
    with _opened(path) as blocks:
        names = blocks.schema.names
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise UnreadableFile(f"{path}: two columns are named {twice[0]!r}; rename or drop one of them.")
    return names


def _separator(path: Path) -> str:
    """What stands between the names of the columns; a comma where there is nothing."""
    import pyarrow as pa

    with pa.input_stream(path, compression=_compression(path)) as stream:
        start = stream.read(1 << 16)
    line = re.sub(rb'"[^"]*"', b"", start).partition(b"\n")[0]
    most = max("\t", ";", ",", key=lambda each: line.count(each.encode()))  # a name may hold as many commas
    return most if most.encode() in line else ","


def _compression(path: Path) -> str | None:
    return "gzip" if path.name.lower().endswith(".gz") else None


def _text_blocks(path: Path, names: list[str], worded: Collection[str | None]) -> Iterator[Any]:
    """The cells as text; numbers have a point, but for the columns of words."""
    import pyarrow as pa

    commas = _separator(path) != ","

    def pointed(name: str, cells: Any) -> Any:
        if not commas or name in worded:
            return cells
        return _compute().replace_substring_regex(cells, pattern=_COMMA, replacement=r"\1.\2")

    with _opened(path, dict.fromkeys(names, pa.string())) as blocks:
        for block in blocks:
            columns = [pointed(*each) for each in zip(names, block.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names)


def _opened(path: Path, types: dict[str, Any] | None = None) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    return csv.open_csv(
        pa.input_stream(path, compression=_compression(path)),
        read_options=csv.ReadOptions(block_size=_BLOCK),
        parse_options=csv.ParseOptions(delimiter=_separator(path)),
        convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    )


def _kinds() -> list[Any]:
    """The types that a column may have, the narrowest first."""
    import pyarrow as pa

    moments = [pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("s", "ns")]
    return [pa.int64(), pa.bool_(), pa.date32(), *moments, pa.float64(), pa.string()]


@dataclass
class _Column:
    """What the rows seen so far of a column may be."""

    kinds: list[Any] = field(default_factory=_kinds)
    offsets: set[str] = field(default_factory=set)  # from UTC, of points in time

    def see(self, text: Any) -> None:
        import pyarrow as pa

        compute = _compute()
        there = compute.ascii_trim_whitespace(text.drop_null())
        *others, as_text = self.kinds
        if others and compute.any(compute.match_substring_regex(there, _CODE)).as_py():
            others = []
        self.kinds = [*(kind for kind in others if _fits(there, kind)), as_text]
        if any(pa.types.is_timestamp(kind) and kind.tz for kind in self.kinds):
            found = compute.struct_field(compute.extract_regex(there, _OFFSET), "offset").unique().to_pylist()
            self.offsets |= {re.sub(r"^(...):?(\d\d)?$", _full, each) for each in found}

    @property
    def kind(self) -> Any:
        import pyarrow as pa

        first = self.kinds[0]
        if pa.types.is_timestamp(first) and first.tz and len(self.offsets) == 1 and "Z" not in self.offsets:
            return pa.timestamp(first.unit, *self.offsets)
        return first


def _full(offset: re.Match) -> str:
    """+02:00, also where +02 or +0200 is written."""
    return f"{offset[1]}:{offset[2] or '00'}"


def _fits(text: Any, kind: Any) -> bool:
    """Whether all is of this type. A few are tried first, as each that fails costs far more than one that does not."""
    import pyarrow as pa

    few = text.take(pa.array(range(0, len(text), len(text) // 32 + 1), pa.int64()))
    try:
        few.cast(kind)
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _compute() -> Any:
    """The functions of pyarrow on columns, which are made when it is imported and so have no types."""
    from pyarrow import compute

    return compute


def write_table(frame: Any, path: Path) -> None:
    """A frame to a CSV or Parquet file, which appears only when it is complete."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix.lower() == ".parquet":
            table.write_parquet(part)
        else:
            table.write_csv(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
