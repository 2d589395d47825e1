"""A table of patients, and the commands for it, that tests of one's own data share."""

import csv
import math
import random
from pathlib import Path

from typer.testing import CliRunner

from acenode.cli.main import app

COLUMNS = ("patient", "hour", "pulse", "pressure", "died")
QUICK = ("--epochs", "2", "--hidden", "4", "--no-report")


def rows(series: int = 12, length: int = 8) -> list[list]:
    """A table without faults."""
    draw = random.Random(0)
    table = []
    for k in range(series):
        phase = draw.uniform(0, 6)
        for i in range(length):
            hour = i + draw.uniform(0, 0.5)
            pulse = "" if draw.random() < 0.2 else round(60 + 10 * math.sin(hour / 2 + phase), 3)
            table.append([f"p{k}", round(hour, 3), pulse, round(100 + 5 * math.cos(hour / 2 + phase), 3), k % 2])
    return table


def write(path: Path, table: list[list], columns=COLUMNS) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *table])
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def train(data: Path, out: Path, *more):
    return run("train", data, "--id", "patient", "--time", "hour", "--out", out, *QUICK, *more)


FORECAST = ("--value", "pulse", "--value", "pressure", "--model", "gru-d", "--report")
