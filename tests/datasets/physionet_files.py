"""What the tests of PhysioNet 2012 share: made-up records, the folders they lie in, and how to read what was loaded."""

from pathlib import Path

import numpy as np

from acenode.datasets import files, physionet
from acenode.datasets.physionet import VARIABLES
from acenode.series import Series

HEADER = "Time,Parameter,Value\n"
ADMISSION = "00:00,RecordID,7\n00:00,Age,54\n00:00,Gender,0\n00:00,Height,170\n00:00,ICUType,4\n00:00,Weight,80\n"
STAY = ADMISSION + "00:07,HR,73\n00:07,GCS,15\n02:30,HR,77\n48:00,Urine,900\n"


def shut_off(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(physionet, "URL", "http://127.0.0.1:9/")
    monkeypatch.delenv("ACENODE_DATA", raising=False)


def write(data_dir: Path, records: dict, letter: str = "a", header: str = HEADER) -> Path:
    """Writes records {id: text} as a set, and gives the folder back."""
    place = data_dir / f"set-{letter}"
    place.mkdir(parents=True, exist_ok=True)
    for record, text in records.items():
        content = text if isinstance(text, bytes) else (header + text).encode()
        (place / f"{record}.txt").write_bytes(content)
    return place.parent


def observations(series: Series, record: int = 0) -> dict[tuple[int, str], float]:
    """{(minute, variable): value} of one record."""
    found = {}
    for row, column in np.argwhere(series.observed[record]):
        found[round(60 * float(series.times[record, row])), VARIABLES[column]] = float(
            series.values[record, row, column]
        )
    return found
