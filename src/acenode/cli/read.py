"""Tables from files: CSV (read in blocks) and Parquet."""

from collections.abc import Collection
from pathlib import Path
from typing import Any


class UnreadableFile(ValueError):
    """The file is not there or not a table; the message says which and what to do."""


def read_table(path: Path, exact: Collection[str] | None = None) -> Any:
    """A pyarrow table from a `.csv` (also `.csv.gz`) or `.parquet` file.

    With `exact`, the other columns of a CSV that hold numbers are kept in single precision, as models see them, which
    takes half the memory.
    """
    try:
        import pyarrow as pa
        from pyarrow import csv, parquet
    except ImportError as error:
        raise UnreadableFile("reading files needs pyarrow; install it with: pip install 'acenode[data]'") from error

    if not path.is_file():
        raise UnreadableFile(f"{path}: there is no such file.")
    if path.stat().st_size == 0:
        raise UnreadableFile(f"{path}: the file is empty; expected a line of column names and rows below it.")
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path)
        if "".join(path.suffixes[-2:]) not in (".csv.gz",) and path.suffix != ".csv":
            raise UnreadableFile(f"{path}: expected a file that ends with .csv, .csv.gz or .parquet.")
        with csv.open_csv(path, read_options=csv.ReadOptions(block_size=1 << 22)) as blocks:
            packed = [_packed(block, exact) for block in blocks]
            return pa.Table.from_batches(packed, None if packed else blocks.schema).unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        fault = str(error).splitlines()[0]
        raise UnreadableFile(
            f"{path}: the file could not be read as a table ({fault}); correct or remove it."
        ) from error


def _packed(block: Any, exact: Collection[str] | None) -> Any:
    """The same rows with each text kept once (an id stands in all rows of its series) and shorter numbers."""
    import pyarrow as pa

    def pack(name, column):
        if pa.types.is_string(column.type):
            return column.dictionary_encode()
        if exact is not None and name not in exact and pa.types.is_float64(column.type):
            return column.cast(pa.float32())
        return column

    columns = [pack(*each) for each in zip(block.schema.names, block.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, block.schema.names)


def write_table(frame: Any, path: Path) -> None:
    """A frame to a CSV or Parquet file, which appears only when it is complete."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix == ".parquet":
            table.write_parquet(part)
        else:
            table.write_csv(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
