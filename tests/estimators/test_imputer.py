"""`Imputer`: blanks filled, all else left as it is."""

import numpy as np
import pandas as pd
import pytest
from frames import KINDS, VALUES, machines, of_kind, to_pandas
from sklearn.base import clone

from acenode.estimators import Imputer, NotFittedError
from acenode.estimators.inference import straight_lines
from acenode.series import Query, series, stack

pytestmark = pytest.mark.slow  # what all tests share is trained first


def test_clone_is_equal_and_not_fitted(imputer):
    other = clone(imputer)
    assert other.get_params() == imputer.get_params()
    with pytest.raises(NotFittedError, match="this Imputer is not fitted"):
        other.transform(machines(2))
    assert "model='ace-latent-ode'" in repr(imputer)


@pytest.mark.parametrize("kind", KINDS)
def test_only_blanks_are_filled(imputer, frame, kind):
    noted = frame.assign(note=np.arange(len(frame)))
    queried = of_kind(noted, kind)
    filled = imputer.transform(queried)
    assert type(filled) is type(queried)
    table = to_pandas(filled)
    assert list(table.columns) == list(noted.columns)
    blank = frame[list(VALUES)].isna()
    assert blank.any(axis=None) and not table[list(VALUES)].isna().any(axis=None)
    # Not a digit of what was known is lost.
    assert (table[list(VALUES)].to_numpy()[~blank] == frame[list(VALUES)].to_numpy()[~blank]).all()
    assert table[["machine", "hour", "note"]].equals(noted[["machine", "hour", "note"]])
    assert table["flow"][blank["flow"]].between(5, 35).all()


def test_rows_in_any_order_and_any_index_are_filled_in_place(imputer, frame):
    mixed = frame.sort_values("hour", kind="stable")
    assert mixed.index.tolist() != sorted(mixed.index)
    filled = imputer.transform(mixed)
    assert filled.index.equals(mixed.index)
    straight = imputer.transform(frame)
    np.testing.assert_allclose(filled[list(VALUES)], straight.loc[mixed.index, list(VALUES)], rtol=1e-4)


def test_answers_do_not_depend_on_batch_mates(imputer, frame):
    """A latent state is not drawn by chance, nor by the place in a batch."""
    few = frame[frame["machine"].isin(["m22", "m07"])]
    np.testing.assert_allclose(
        imputer.transform(few)[list(VALUES)], imputer.transform(frame).loc[few.index, list(VALUES)], rtol=1e-4
    )


def test_columns_without_blanks_keep_their_type(imputer):
    frame = pd.DataFrame(
        {"machine": "a", "hour": np.arange(6.0), "heat": [0.1, np.nan, 0.2, 0.3, 0.1, 0.2], "flow": range(6)}
    )
    filled = imputer.transform(frame)
    assert filled["flow"].dtype == frame["flow"].dtype and filled["flow"].equals(frame["flow"])
    whole = frame.drop(index=1)
    assert imputer.transform(whole) is whole


def test_score_is_minus_the_error_of_hidden_values(imputer, frame):
    metrics = imputer.evaluate(frame)
    assert imputer.score(frame) == -metrics["mse"] < 0
    assert set(metrics) == {"mse", "negll", "coverage", "mse_baseline"}
    assert imputer.evaluate(frame) == metrics  # the same values are hidden again


def test_without_a_model_lines_are_drawn_between_known_values():
    """The last value stands for what comes after it, the mean for what was never seen."""
    known = stack([series([0.0, 2.0, 4.0], [[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]])])
    queried = np.array([[1.0, 2.5, 4.0]])
    nothing = np.zeros((1, 3, 2), bool)
    query = Query(known, queried, np.zeros((1, 3, 2)), nothing, nothing)
    assert straight_lines(query).tolist() == [[[2.0, 0.0], [3.0, 0.0], [3.0, 0.0]]]


def test_attention_of_hidden_dimensions_sums_to_one(imputer, frame):
    few = frame[frame["machine"] < "m03"]
    answer = imputer.attention(few)
    assert len(answer) == len(few) * 8 * 8 and set(answer["to"]) == {f"h{k}" for k in range(1, 9)}
    np.testing.assert_allclose(answer.groupby(["machine", "hour", "attends"])["weight"].sum(), 1, rtol=1e-5)


@pytest.mark.parametrize("hide", [0.0, 1.0])
def test_the_hidden_part_lies_between_none_and_all(frame, hide):
    with pytest.raises(ValueError, match="hide=.*between 0 and 1"):
        Imputer(id="machine", time="hour", hide=hide).fit(frame)


def test_too_few_values_to_hide_are_refused(imputer):
    one = pd.DataFrame({"machine": ["a"], "hour": [1.0], "heat": [0.5], "flow": [np.nan]})
    with pytest.raises(ValueError, match="too few values to hide a part of 20%"):
        imputer.evaluate(one)


def test_faults_of_the_table_are_told(imputer, frame):
    with pytest.raises(ValueError, match="the table to fill: there is no column 'heat'"):
        imputer.transform(frame.drop(columns="heat"))
    with pytest.raises(ValueError, match="machine 'z' has no value in any row"):
        imputer.transform(pd.DataFrame({"machine": ["z"], "hour": [1.0], "heat": [np.nan], "flow": [np.nan]}))
