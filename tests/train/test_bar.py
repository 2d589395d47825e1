"""What the progress bar shows."""

import numpy as np
import pytest
from toy_task import Descent

from acenode.train import Bar, Member, Progress, Quiet, Recipe


def record(**changes) -> dict[str, np.ndarray]:
    numbers = {"loss": 1.0, "attention_loss": 2.0, "nfe": 14.0, "skipped": 0, "validation_distance": 0.5}
    return {name: np.asarray([value, value]) for name, value in (numbers | changes).items()}


@pytest.fixture
def bar():
    bar = Bar("the run")
    bar.start(Recipe(epochs=4), [Member(), Member(1)], Descent(), 1)
    yield bar
    bar.stop()


def row(bar):
    return bar._display.rows.tasks[0]


def test_every_progress_is_one(bar):
    assert isinstance(bar, Progress) and isinstance(Quiet(), Progress)


def test_it_starts_where_the_run_resumes(bar):
    assert row(bar).completed == 1 and row(bar).total == 4
    assert row(bar).description == "the run (2 runs at once)"


def test_it_tells_losses_score_evaluations_and_speed(bar):
    bar.epoch(1, record(), 100)
    shown = row(bar).fields["numbers"]
    assert row(bar).completed == 2
    for part in ("L_h 1.000", "L_a 2.000", "val distance 0.5000", "NFE 14", "samples/s"):
        assert part in shown


def test_it_leaves_out_the_attention_where_there_is_none(bar):
    bar.epoch(1, record(attention_loss=0.0), 100)
    assert "L_a" not in row(bar).fields["numbers"]


def test_members_that_have_stopped_do_not_count(bar):
    told = record()
    told["loss"] = np.asarray([np.nan, 3.0])
    told["validation_distance"] = np.asarray([np.nan, np.nan])
    bar.epoch(1, told, 100)
    assert "L_h 3.000" in row(bar).fields["numbers"] and "distance nan" in row(bar).fields["numbers"]


def test_a_log_gets_a_line_now_and_then(bar, capsys):
    for epoch in range(1, 4):
        bar.epoch(epoch, record(), 100)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(", ")[0] for line in lines] == [f"the run (2 runs at once): epoch {e} of 4" for e in (2, 4)]
    assert "val distance 0.5000" in lines[0]


def test_a_terminal_gets_no_lines(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    bar = Bar("the run")
    assert bar._display.watched
    bar.start(Recipe(epochs=4), [Member()], Descent(), 0)
    bar.epoch(0, record(), 100)
    bar.stop()
    assert "epoch 1 of 4" not in capsys.readouterr().err
