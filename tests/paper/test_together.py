"""Rows at a time: order, sharing of time, and how all of them end when one does."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from acenode.paper.together import OutOfTime, together
from acenode.tasks import Forecast
from acenode.train import Member, Recipe

RECORD = {name: np.zeros(1) for name in ("loss", "attention_loss", "nfe", "validation_negll")}


def begin(progress):
    progress.start(Recipe(epochs=3), [Member(0)], Forecast(), 0)


def test_answers_come_in_order_while_rows_run_at_a_time():
    met = threading.Barrier(2, timeout=60)

    def run(name, progress):
        begin(progress)
        met.wait()  # would never return if the two were run one after the other
        progress.epoch(0, RECORD, 10)
        progress.stop()
        return name.upper()

    assert list(together(["a", "b"], run, 2)) == [("a", "A"), ("b", "B")]


def test_one_job_takes_one_row_after_the_other():
    running = []

    def run(name, progress):
        running.append(name)
        assert len(running) == 1
        running.remove(name)
        return name

    assert [done for _, done in together("abc", run, 1)] == ["a", "b", "c"]


@pytest.mark.parametrize("order", [["bad", "good", "never begun"], ["good", "bad", "never begun"]])
def test_when_one_fails_the_others_end_at_their_next_epoch(order):
    ended, begun = [], threading.Event()

    def run(name, progress):
        if name == "bad":
            assert begun.wait(60)
            raise ValueError("no such data")
        begin(progress)
        begun.set()
        try:
            for epoch in range(10_000):
                progress.epoch(epoch, RECORD, 10)
        except KeyboardInterrupt:
            ended.append(name)
            raise

    with pytest.raises(ValueError, match="no such data"):
        list(together(order, run, 2))
    assert ended == ["good"]


def test_when_time_is_over_all_end_at_their_next_epoch(monkeypatch):
    clock, ended = SimpleNamespace(now=0.0), []
    monkeypatch.setattr("acenode.paper.together.time", SimpleNamespace(monotonic=lambda: clock.now))
    begun = threading.Barrier(2, action=lambda: setattr(clock, "now", 11.0), timeout=60)

    def run(name, progress):
        begin(progress)
        progress.epoch(0, RECORD, 10)  # in time
        begun.wait()
        try:
            progress.epoch(1, RECORD, 10)
        except (OutOfTime, KeyboardInterrupt):
            ended.append(name)
            raise

    with pytest.raises(OutOfTime):
        list(together(["a", "b", "never begun"], run, 2, seconds=10.0))
    assert sorted(ended) == ["a", "b"]
