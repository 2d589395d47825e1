"""The page about a user's own run: which pictures each kind of estimator has."""

import pytest
from frames import labelled

from acenode.cli.own_report import write_report

PICTURES = {"forecaster": {"series", "error", "attention"}, "imputer": {"series", "attention"}, "classifier": set()}


@pytest.mark.parametrize("kind", PICTURES)
def test_the_pictures_of_a_run(kind, frame, tmp_path, request):
    fitted = request.getfixturevalue(kind)
    page = write_report(fitted, labelled(frame) if kind == "classifier" else frame, tmp_path)
    drawn = {path.stem for path in page.parent.glob("*.png")}
    assert drawn == {*PICTURES[kind], "learning"}
    text = page.read_text()
    assert f"Trained on {fitted.summary_.series:,} series" in text
    assert "http" not in text.replace("http://www.w3.org", "")
