"""Tables of a few short series of two variables, in the libraries that users have."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

VALUES = ("heat", "flow")
KINDS = ("pandas", "polars", "pyarrow")


def machines(count: int = 24, seed: int = 0, blanks: float = 0.15) -> pd.DataFrame:
    """Columns machine, hour, heat, flow: sines at irregular times 4 to 8 rows each, some values missing."""
    rng = np.random.default_rng(seed)
    parts = []
    for k in range(count):
        rows = int(rng.integers(4, 9))
        hour = np.sort(rng.choice(np.arange(48), rows, replace=False)) / 2
        wave = np.stack([np.sin(hour / 3 + k), 20 + 5 * np.cos(hour / 3 + k)], axis=1)
        wave[rng.random(wave.shape) < blanks] = np.nan
        wave[0] = np.sin(k), 20 + np.cos(k)
        parts.append(pd.DataFrame({"machine": f"m{k:02d}", "hour": hour, "heat": wave[:, 0], "flow": wave[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def labelled(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with a label for each machine."""
    number = frame["machine"].str[1:].astype(int)
    return frame.assign(state=np.where(number % 2 == 0, "good", "worn"))


def dated(frame: pd.DataFrame, zone: str | None) -> pd.DataFrame:
    """The same with points in time for hours."""
    when = pd.Timestamp("2021-03-27 06:00", tz=zone) + pd.to_timedelta(frame["hour"], unit="h")
    return frame.assign(hour=when)


def of_kind(frame: pd.DataFrame, kind: str):
    """The frame in another library."""
    if kind == "pandas":
        return frame
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table if kind == "pyarrow" else pl.from_arrow(table)


def to_pandas(frame) -> pd.DataFrame:
    return frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()


def refused(call, *words: str) -> str:
    """The sentence with which a call is refused, which says these words."""
    with pytest.raises(ValueError) as caught:
        call()
    said = str(caught.value)
    for word in words:
        assert word in said, said
    assert said.endswith(".") and "\n" not in said
    return said
