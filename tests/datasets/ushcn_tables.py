"""Made-up tables of daily values, as the raw files of USHCN are read."""

import numpy as np

from acenode.datasets.ushcn_raw import EPOCH, Table


def days(first: str, last: str) -> np.ndarray:
    start, stop = (np.asarray([first, last], "datetime64[D]") - EPOCH).astype(np.int32)
    return np.arange(start, stop + 1, dtype=np.int32)


def table(*parts: tuple[str, int, np.ndarray]) -> Table:
    """Values of (station, element, days); a value is the day's last three digits."""
    stations = tuple(sorted({name for name, _, _ in parts}))
    ordered = sorted(parts, key=lambda part: part[:2])
    day = np.concatenate([part[2] for part in ordered]).astype(np.int32)
    lengths = [len(part[2]) for part in ordered]
    station = np.repeat([stations.index(name) for name, _, _ in ordered], lengths).astype(np.int32)
    element = np.repeat([which for _, which, _ in ordered], lengths).astype(np.int8)
    return Table(stations, station, element, day, day % 1000, np.full(len(day), ord(" "), np.uint8))
