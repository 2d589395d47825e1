"""Write the small tables of this folder: generated patients with irregular measurements and blanks.

    python examples/make_tables.py

- `data.csv`: patients to train on, 48 hours each;
- `new.csv`: the first hours of others, to be forecast;
- `test.csv`: others again, with all their hours, to evaluate on;
- `labelled.csv`: patients of whom some died, to learn the label from.

Nothing in them is real. A temperature swings with the day, the pulse follows it two hours later, the pressure falls
when the pulse rises; of those who died the swings grow. The same seed gives the same files.
"""

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
HOURS = 48.0
VARIABLES = ("pulse", "pressure", "temperature")


def patient(random: np.random.Generator, until: float = HOURS, grows: float = 0.0) -> list[list[str]]:
    """Rows of hour, pulse, pressure and temperature at irregular hours; a blank is an empty cell."""
    rows = max(3, round(14 * until / HOURS))
    hours = np.sort(random.choice(np.arange(1, round(until * 10)), rows, replace=False)) / 10
    phase, swing, rest = random.uniform(0, 24), random.uniform(0.4, 0.9), random.normal(75, 6)

    def fever(hour):
        return (swing + grows * hour / HOURS) * np.sin(2 * np.pi * (hour - phase) / 24)

    pulse = rest + 12 * fever(hours - 2)
    values = np.stack([pulse, 125 - 0.8 * (pulse - 75), 37 + fever(hours)], axis=1)
    values += random.normal(0, 1, values.shape) * (1.5, 2.0, 0.08)
    seen = random.random(values.shape) > (0.2, 0.4, 0.3)
    seen[np.arange(rows), random.integers(0, 3, rows)] = True  # no row without any value
    cells = [
        [f"{x:.{places}f}" if s else "" for x, s, places in zip(row, mask, (0, 0, 1), strict=True)]
        for row, mask in zip(values, seen, strict=True)
    ]
    return [[f"{hour:g}", *row] for hour, row in zip(hours, cells, strict=True)]


def write(name: str, header: list[str], rows: list[list[str]]) -> None:
    with open(HERE / name, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main() -> None:
    random = np.random.default_rng(7)
    header = ["patient", "hour", *VARIABLES]
    for name, first, count, until in (("data", 1, 64, HOURS), ("new", 101, 8, 24.0), ("test", 201, 16, HOURS)):
        rows = [[f"p{first + k:03d}", *row] for k in range(count) for row in patient(random, until)]
        write(f"{name}.csv", header, rows)
    labelled = []
    for k in range(80):
        died = int(random.random() < 0.4)
        labelled += [[f"p{301 + k}", *row, str(died)] for row in patient(random, grows=2.0 * died)]
    write("labelled.csv", [*header, "died"], labelled)


if __name__ == "__main__":
    main()
