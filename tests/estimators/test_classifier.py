"""`Classifier`: a label for each series."""

import copy

import numpy as np
import pandas as pd
import pytest
from frames import KINDS, dated, labelled, machines, of_kind, to_pandas
from sklearn.base import clone

from acenode.estimators import Classifier, NotFittedError
from acenode.estimators.inference import warn_of_failures
from acenode.models import Filter


def test_clone_is_equal_and_not_fitted(classifier):
    other = clone(classifier)
    same = {**other.get_params(), "model": classifier.model}  # of an own model a copy is made
    assert same == classifier.get_params()
    with pytest.raises(NotFittedError, match="this Classifier is not fitted"):
        other.predict(machines(2))


def test_repr_shows_the_settings(classifier):
    assert "Entry(description='a filter of my own'" in repr(classifier)
    assert "fitted: model='own', hidden=8, batch_size=4, epochs=2" in repr(classifier)


def test_a_model_of_ones_own_is_fitted(classifier, own_entry):
    assert classifier.settings_.model == "own" and classifier.entry_ is own_entry
    assert isinstance(classifier.model_.model, Filter)
    assert np.isfinite(classifier.history_["validation_cross_entropy"]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_of_each_label_sum_to_one(classifier, frame, kind):
    queried = of_kind(frame, kind)  # without labels
    answer = classifier.predict_proba(queried)
    assert type(answer) is type(queried)
    table = to_pandas(answer)
    assert list(table.columns) == ["machine", "p_good", "p_worn"]
    assert table["machine"].tolist() == frame["machine"].unique().tolist()
    np.testing.assert_allclose(table["p_good"] + table["p_worn"], 1, rtol=1e-6)
    assert (table[["p_good", "p_worn"]] > 0).all(axis=None)


def test_the_likeliest_label_is_predicted(classifier, frame):
    chosen, probability = classifier.predict(frame), classifier.predict_proba(frame)
    assert list(chosen.columns) == ["machine", "state"]
    assert chosen["state"].tolist() == np.where(probability["p_good"] > probability["p_worn"], "good", "worn").tolist()


def test_answers_do_not_depend_on_batch_mates_or_on_their_order(classifier, frame):
    whole = classifier.predict_proba(frame).set_index("machine")["p_good"]
    few = frame[frame["machine"].isin(["m13", "m02"])].sort_values("machine", ascending=False, kind="stable")
    alone = classifier.predict_proba(few).set_index("machine")["p_good"]
    assert alone.index.tolist() == ["m13", "m02"]
    np.testing.assert_allclose(alone, whole[alone.index], rtol=1e-5)


def test_score_is_the_part_that_is_right(classifier, frame):
    table = labelled(frame)
    truth = table.drop_duplicates("machine")["state"].to_numpy()
    assert classifier.score(table) == np.mean(classifier.predict(frame)["state"].to_numpy() == truth)
    metrics = classifier.evaluate(table)
    probability = classifier.predict_proba(frame)
    right = np.where(truth == "good", probability["p_good"], probability["p_worn"])
    assert metrics["cross_entropy"] == pytest.approx(-np.log(right).mean(), rel=1e-5)
    assert metrics["commonest"] == 0.5
    worn = truth == "worn"
    above = probability["p_worn"].to_numpy()[worn][:, None] - probability["p_worn"].to_numpy()[~worn]
    assert metrics["auc"] == pytest.approx(np.mean((above > 0) + 0.5 * (above == 0)))


@pytest.mark.parametrize("classes", [[False, True], [0, 7]])
def test_labels_may_be_numbers_or_true_and_false(classifier, frame, classes):
    other = copy.copy(classifier)
    other.classes_ = classes
    chosen = other.predict(frame)["state"]
    assert set(chosen) <= set(classes) and isinstance(chosen.iloc[0], (bool, np.bool_, int, np.integer))
    assert list(other.predict_proba(frame).columns)[1:] == [f"p_{c}" for c in classes]
    assert 0 <= other.score(frame.assign(state=classes[0])) <= 1


def test_labels_that_were_never_seen_are_named(classifier, frame):
    table = labelled(frame).replace({"state": {"worn": "lost"}})
    with pytest.raises(ValueError, match="the label 'lost' of machine 'm01' was not in the training table"):
        classifier.evaluate(table)


def test_a_label_is_needed_to_evaluate(classifier, frame):
    with pytest.raises(ValueError, match="there is no column 'state'"):
        classifier.evaluate(frame)


def test_dates_where_numbers_were_trained_on_are_refused(classifier, frame):
    with pytest.raises(ValueError, match="'hour' holds datetimes; the model was trained on numbers"):
        classifier.predict(dated(frame, None))


def test_a_model_without_attention_says_so(classifier, frame):
    with pytest.raises(ValueError, match="the model own has none; fit one whose name begins with ace"):
        classifier.attention(frame)


def test_longer_series_than_those_of_training_are_warned_of(classifier, frame):
    long = pd.DataFrame({"machine": "z", "hour": [0.0, 90.0], "heat": [0.1, 0.2], "flow": [20.0, 21.0]})
    with pytest.warns(UserWarning, match="90, the last time of machine 'z', is farther"):
        classifier.predict(long)


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ("good", "the label 'state' is 'good' in every row; a classifier needs two"),
        (None, "the label 'state' is blank in row 1"),
    ],
)
def test_labels_that_teach_nothing_are_refused(frame, states, says):
    with pytest.raises(ValueError, match=says):
        Classifier(id="machine", time="hour", label="state").fit(frame.assign(state=states))


def test_an_id_is_not_named_as_a_probability(frame):
    table = labelled(frame).rename(columns={"machine": "p_good"})
    with pytest.raises(ValueError, match="'p_good' is a column of the probabilities too; rename it"):
        Classifier(id="p_good", time="hour", label="state").fit(table)


def test_a_label_that_varies_inside_a_series_is_refused(frame):
    table = labelled(frame)
    table.loc[1, "state"] = "worn"
    with pytest.raises(ValueError, match="machine 'm00' is 'good' in row 1 and 'worn' in row 2"):
        Classifier(id="machine", time="hour", label="state").fit(table)


def test_the_same_label_as_text_and_as_number_is_refused(frame):
    state = [1 if id < "m12" else "1" for id in frame["machine"]]
    with pytest.raises(ValueError, match="the same name as text and as a number"):
        Classifier(id="machine", time="hour", label="state").fit(frame.assign(state=state))


def test_a_series_without_an_answer_has_no_label_and_spoils_the_score(classifier, frame, monkeypatch):
    whole = classifier._probabilities(labelled(frame))
    lost = whole[1].copy()
    lost[3] = np.nan
    with pytest.warns(UserWarning, match="for 1 of 24 series, 'm03' first, the solver failed"):
        warn_of_failures(lost, whole[0])
    monkeypatch.setattr(classifier, "_probabilities", lambda frame: (whole[0], lost, whole[2]))
    chosen = classifier.predict(frame)["state"]
    assert chosen.isna().tolist() == [k == 3 for k in range(24)]
    assert all(np.isnan(value) for value in classifier.evaluate(labelled(frame)).values())
