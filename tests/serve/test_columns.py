"""The service of models with columns of words, static ones, ones known ahead, and with several labels."""

import numpy as np
import pytest
from fastapi.testclient import TestClient
from frames import dated
from test_service import AT, refused
from untrained import untrained

from acenode.estimators import Forecaster, load
from acenode.serve.app import create_app

GIVEN = {"id": "machine", "time": "hour", "hidden": 4}


def rows_of(frame):
    """The rows as JSON."""
    return [
        {
            "id": row.pop("machine"),
            "time": row.pop("hour"),
            "values": {n: None if v != v else v for n, v in row.items()},
        }
        for row in frame.to_dict("records")
    ]


def some(frame, *machines):
    return frame[frame["machine"].isin(machines)]


def example(client, path):
    described = client.get("/openapi.json").json()["paths"][path]["post"]
    return described["requestBody"]["content"]["application/json"]["example"]


@pytest.fixture(scope="module")
def client(rough_folder, tmp_path_factory):
    with TestClient(create_app(rough_folder, tmp_path_factory.mktemp("state") / "state.sqlite")) as client:
        yield client


# --- several labels ---------------------------------------------------------------------------------------------------


def test_several_labels_are_answered_each_by_its_name(labels_folder, rough):
    few = some(rough, "m00", "m03")
    with TestClient(create_app(labels_folder)) as client:
        answer = client.post("/predict", json={"rows": rows_of(few)})
        assert answer.status_code == 200, answer.text
        classifier = load(labels_folder)
        probability, likeliest = classifier.predict_proba(few), classifier.predict(few)
        for k, given in enumerate(answer.json()["labels"]):
            assert given["id"] == likeliest["machine"][k]
            assert given["label"] == {"state": likeliest["state"][k], "spare": likeliest["spare"][k]}
            for name, classes in (("state", ("good", "worn")), ("spare", ("0", "1"))):
                expected = {c: probability[f"p_{name}_{c}"][k] for c in classes}
                assert given["probabilities"][name] == pytest.approx(expected, rel=1e-5)
        assert client.post("/predict", json=example(client, "/predict")).status_code == 200


# --- words ------------------------------------------------------------------------------------------------------------


def test_both_requests_take_a_word_by_its_column(client, rough_folder, rough):
    few, own = some(rough, "m04"), load(rough_folder)
    for row in rows_of(few):
        answer = client.post("/update", json={**row, "id": "words"})
        assert answer.status_code == 200 and answer.json()["warnings"] == [], answer.text
        own.update("words", row["time"], row["values"])
    followed = client.get("/forecast/words", params={"at": AT}).json()["forecasts"]
    whole = client.post("/predict", json={"rows": rows_of(few), "at": AT}).json()["forecasts"]
    expected = own.predict(few, at=AT)
    for given in (followed, whole):
        assert [g["variable"] for g in given] == expected["variable"].tolist()
        np.testing.assert_allclose([g["mean"] for g in given], expected["mean"], rtol=1e-3)
    np.testing.assert_allclose([g["mean"] for g in followed], own.predict(at=AT)["mean"], rtol=1e-5)


def test_a_word_moves_the_forecast(client):
    row = {"time": 1.0, "values": {"heat": 0.5, "colour": "red"}}
    client.post("/update", json={**row, "id": "red"})
    client.post("/update", json={**row, "id": "blue", "values": {"heat": 0.5, "colour": "blue"}})
    one, two = (client.get(f"/forecast/{id}?at=3").json()["forecasts"][0]["mean"] for id in ("red", "blue"))
    assert one != two


def test_a_column_of_one_word_is_refused_by_both(client):
    row = {"id": "x", "time": 1.0, "values": {"colour=red": 1.0}}
    for answer in (client.post("/update", json=row), client.post("/predict", json={"rows": [row], "at": AT})):
        said = refused(answer, 422, "there is no variable 'colour=red'; the model has")
        assert {"heat", "flow", "size", "colour", "make."} == set(said.split("the model has ")[1].split(", "))


def test_an_unknown_word_counts_as_none_with_a_warning(client):
    row = {"id": "pink", "time": 1.0, "values": {"heat": 0.5, "colour": "pink"}}
    answer = client.post("/update", json=row).json()
    assert answer["warnings"] == [
        "update: 'colour' is 'pink', a word that it never was in training; it counts as none of those."
    ]
    followed = client.get("/forecast/pink?at=3").json()["forecasts"]
    whole = client.post("/predict", json={"rows": [row], "at": [3.0]}).json()
    assert "'pink' in a row, a word that it never was in training" in whole["warnings"][0]
    np.testing.assert_allclose([g["mean"] for g in followed], [g["mean"] for g in whole["forecasts"]], rtol=1e-4)


def test_an_unknown_word_is_a_warning_of_the_library(rough_folder):
    own = load(rough_folder)
    with pytest.warns(UserWarning, match="'colour' is 'pink', a word that it never was"):
        own.update("a", 1.0, {"heat": 0.5, "colour": "pink"})


def test_the_example_of_the_page_is_taken(client):
    body = example(client, "/predict")
    assert body["rows"][0]["values"].keys() == {"heat", "flow", "size", "colour", "make"}
    answer = client.post("/predict", json=body)
    assert answer.status_code == 200 and answer.json()["warnings"] == [], answer.text
    assert client.post("/update", json=example(client, "/update")).status_code == 200
    assert "colour=" not in client.get("/docs").text


# --- static columns ---------------------------------------------------------------------------------------------------


def test_static_values_are_carried_to_later_rows(rough_folder, rough, tmp_path):
    few, state = some(rough, "m06").copy(), tmp_path / "state.sqlite"
    few.loc[few.index[2], ["heat", "flow", "colour"]] = None  # a row of static values alone
    rows = rows_of(few)
    for row in rows[1:]:
        del row["values"]["size"], row["values"]["make"]
    for part in (rows[:3], rows[3:]):  # a restart between them
        with TestClient(create_app(rough_folder, state)) as client:
            for row in part:
                assert client.post("/update", json=row).status_code == 200
            followed = client.get("/forecast/m06", params={"at": AT}).json()["forecasts"]
    expected = load(rough_folder).predict(few, at=AT)
    np.testing.assert_allclose([g["mean"] for g in followed], expected["mean"], rtol=1e-3)
    with TestClient(create_app(rough_folder, state)) as client:
        later = {"id": "m06", "time": 30.0, "values": {"heat": 0.5, "size": rows[0]["values"]["size"]}}
        assert client.post("/update", json=later).status_code == 200


@pytest.mark.parametrize(
    ("first", "later", "words"),
    [
        ({"size": 2.0}, {"size": 3.0}, "static column 'size' of 'still' was 2 in its first observation and is 3 now"),
        ({"size": 2.0}, {"make": "old"}, "'make=new' of 'still' was blank in its first observation and is 0 now"),
        ({"make": "old"}, {"make": "new"}, "'make=new' of 'still' was 0 in its first observation and is 1 now"),
    ],
)
def test_static_values_that_change_are_refused(rough_folder, tmp_path, first, later, words):
    with TestClient(create_app(rough_folder, tmp_path / "state.sqlite")) as client:
        row = {"id": "still", "time": 1.0, "values": {"heat": 0.5, **first}}
        assert client.post("/update", json=row).status_code == 200
        before = client.get("/forecast/still?at=5").json()
        refused(client.post("/update", json={**row, "time": 2.0, "values": {"heat": 0.1, **later}}), 422, words)
        assert client.get("/forecast/still?at=5").json() == before


# --- columns known ahead ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned_client(planned_forecaster, tmp_path_factory):
    folder = planned_forecaster.save(tmp_path_factory.mktemp("served") / "planned")
    with TestClient(create_app(folder)) as client:
        yield client


def test_query_times_are_rows_with_what_is_known_ahead(planned_client, planned_forecaster, planned):
    few = some(planned, "m00", "m03")
    at = few[["machine"]].drop_duplicates().assign(hour=[25.0, 26.5], plan=[0.5, np.nan], part=["night", "day"])
    answer = planned_client.post("/predict", json={"rows": rows_of(few), "at": rows_of(at)})
    assert answer.status_code == 200, answer.text
    expected, given = planned_forecaster.predict(few, at=at), answer.json()["forecasts"]
    assert [(g["id"], g["time"]) for g in given] == list(zip(expected["machine"], expected["hour"], strict=True))
    np.testing.assert_allclose([g["mean"] for g in given], expected["mean"], rtol=1e-5)
    assert planned_client.post("/predict", json=example(planned_client, "/predict")).status_code == 200


ROW = {"id": "x", "time": 1.0, "values": {"heat": 0.5, "plan": 0.1, "part": "day"}}
QUERY = {"id": "x", "time": 2.0, "values": {"plan": 0.1, "part": "day"}}


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ([2.0], "at: the model has columns that are known ahead (plan, part); give rows with id, time and, in values"),
        ([QUERY, 3.0], "at: some are times and some are rows"),
        ([{**QUERY, "values": {"plan": 0.1}}], "at: 'part' is known ahead and missing in row 1; give it, or null"),
        ([{**QUERY, "values": {"heat": 1.0}}], "at: 'heat' is no column that is known ahead; those are: plan, part"),
        ([{**QUERY, "values": {"plan": "low", "part": "day"}}], "column 'plan' holds 'low' in row 1"),
        ([{**QUERY, "id": "y"}], "machine 'y' is queried, but the table has no rows of it"),
        ([{**QUERY, "time": 1.0}], "1 is not after the last row of machine 'x'"),
        ([{**QUERY, "time": "noon"}], "'noon'"),
        ([QUERY, {**QUERY, "time": "noon"}], "at: 'time' is text in some rows and a number in others"),
        ([QUERY, QUERY], "at: 'x' is queried twice at 2.0"),
        ([{"id": "x", "values": {}}], "at.0.time: Field required"),
        ([{**QUERY, "more": 1}], "at.0.more: Extra inputs are not permitted"),
        ([{**QUERY, "values": {"plan": [1]}}], "at.0.values.plan"),
        ([[2.0]], "at.0"),
    ],
)
def test_bad_query_rows_are_refused(planned_client, at, words):
    refused(planned_client.post("/predict", json={"rows": [ROW], "at": at}), 422, words)


def test_query_rows_name_the_series(client):
    rows = [{"id": id, "time": 1.0, "values": {"heat": 0.5}} for id in ("a", "b")]
    at = [{"id": "b", "time": 3.0, "values": {}}]
    given = client.post("/predict", json={"rows": rows, "at": at}).json()["forecasts"]
    assert {(g["id"], g["time"]) for g in given} == {("b", 3.0)}
    said = client.post("/predict", json={"rows": rows, "at": [{**at[0], "values": {"size": 1.0}}]})
    refused(said, 422, "'size' is no column that is known ahead; those are: none")


def test_what_is_known_ahead_cannot_be_followed(planned_client):
    for answer in (planned_client.post("/update", json=ROW), planned_client.get("/forecast/x?at=3")):
        refused(answer, 422, "gru-d with columns that are known ahead cannot follow series; send whole series to")


@pytest.mark.parametrize("zone", [None, "Europe/Vienna"])
def test_the_example_has_dates_where_the_model_has(planned, tmp_path, zone):
    frame = dated(planned, zone)
    folder = untrained(Forecaster(**GIVEN, future=["plan", "part"], model="gru-d"), frame).save(tmp_path / "model")
    with TestClient(create_app(folder)) as client:
        body = example(client, "/predict")
        assert body["rows"][0]["time"].startswith("2024-01-31T14:00")
        answer = client.post("/predict", json=body)
        assert answer.status_code == 200, answer.text
