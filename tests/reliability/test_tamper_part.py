"""Tampered model folders are refused by name, and nothing in a file is executed."""

import pytest
from benchmarks.campaign import tamper
from benchmarks.campaign.samples import SMALL, machines, untrained
from benchmarks.campaign.tally import Tally

from acenode.estimators import Forecaster


def test_a_changed_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tally = Tally()
    folder = untrained(Forecaster(**SMALL, model="gru-d"), machines(12)).save(tmp_path / "model")
    tamper.tamper_with(folder, 0.02, tally)
    assert not tally.losses, tally.examples
    assert min(tally.tried[kind] for kind in ("model.json", "weights", "pickle in a model")) > 1


def test_no_module_executes_what_it_reads():
    tally = Tally()
    tamper.look_into_modules(tally)
    assert not tally.losses, tally.examples
    assert tamper.EXECUTES.search((tamper.ROOT / "datasets/physiome_raw.py").read_text())  # the one exception is found


@pytest.mark.slow
def test_no_pickle_in_a_file_is_executed():
    found = tamper.run(0.01)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
