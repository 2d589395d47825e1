"""The service through its ASGI application: answers equal the library's, refusals are one sentence."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from acenode.estimators import follow, load
from acenode.serve.app import create_app
from acenode.serve.store import Store, StoreError

VALUES = ("heat", "flow")
AT = [24.0, 26.5]


def rows_of(frame):
    return [
        {
            "id": row["machine"],
            "time": row["hour"],
            "values": {name: None if np.isnan(row[name]) else row[name] for name in VALUES},
        }
        for row in frame.to_dict("records")
    ]


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    with TestClient(create_app(folder, tmp_path_factory.mktemp("state") / "state.sqlite")) as client:
        yield client


def refused(answer, status, words=""):
    """The sentence of a refusal."""
    assert answer.status_code == status, answer.text
    said = answer.json()["error"]
    assert words in said and said.endswith(".") and "\n" not in said, said
    return said


# --- answers ----------------------------------------------------------------------------------------------------------


def test_health_and_the_page_of_the_interface(client):
    health = client.get("/health").json()
    assert health["status"] == "ok" and health["model"] == "gru-ode-bayes" and health["estimator"] == "Forecaster"
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/predict", "/update", "/forecast/{id}", "/health"}
    page = client.get("/docs").text
    assert "/forecast/{id}" in page and "heat" in page
    assert "<script" not in page and "http://" not in page and "https://" not in page  # works without a network


def test_predictions_are_those_of_the_library(client, forecaster, frame):
    few = frame[frame["machine"].isin(["m00", "m03"])]
    answer = client.post("/predict", json={"rows": rows_of(few), "at": AT})
    assert answer.status_code == 200, answer.text
    expected = forecaster.predict(few, at=AT)
    given = answer.json()["forecasts"]
    assert [(g["id"], g["time"], g["variable"]) for g in given] == list(
        zip(expected["machine"], expected["hour"], expected["variable"], strict=True)
    )
    for name in ("mean", "q0.05", "q0.95"):
        np.testing.assert_allclose([g[name] for g in given], expected[name], rtol=1e-5)


def test_updates_are_followed_as_in_the_library(client, folder, frame):
    few = frame[frame["machine"] == "m03"]
    own = load(folder)
    for k, row in enumerate(rows_of(few)):
        answer = client.post("/update", json={**row, "id": "a/b c"})
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"id": "a/b c", "time": row["time"], "observations": k + 1, "warnings": []}
        own.update("a/b c", row["time"], row["values"])
    answer = client.get("/forecast/a/b c", params={"at": AT})
    assert answer.status_code == 200, answer.text
    expected = own.predict(at=AT)
    np.testing.assert_allclose([g["mean"] for g in answer.json()["forecasts"]], expected["mean"], rtol=1e-5)
    assert client.get("/health").json()["followed"] >= 1


def test_far_times_come_with_a_warning(client, frame):
    few = frame[frame["machine"] == "m03"]
    answer = client.post("/predict", json={"rows": rows_of(few), "at": [60.0]}).json()
    assert len(answer["warnings"]) == 1 and "such predictions are guesses" in answer["warnings"][0]


def test_a_classifier_and_an_imputer_answer_too(classifier_folder, imputer_folder, frame, tmp_path):
    few = frame[frame["machine"].isin(["m00", "m03"])]
    with TestClient(create_app(classifier_folder, tmp_path / "no.sqlite")) as client:
        answer = client.post("/predict", json={"rows": rows_of(few)})
        assert answer.status_code == 200, answer.text
        expected = load(classifier_folder).predict_proba(few)
        for k, given in enumerate(answer.json()["labels"]):
            np.testing.assert_allclose(given["probabilities"]["good"], expected["p_good"][k], rtol=1e-5)
            assert given["label"] == max(given["probabilities"], key=given["probabilities"].get)
        refused(client.post("/update", json=rows_of(few)[0]), 422, "gru-d cannot follow series; send whole series to")
        refused(client.get("/forecast/m00?at=3"), 422, "cannot follow")
        refused(client.post("/predict", json={"rows": rows_of(few), "at": AT}), 422, "takes no query times")
        assert client.get("/health").json()["followed"] is None
    assert not (tmp_path / "no.sqlite").exists()
    with TestClient(create_app(imputer_folder)) as client:
        filled = client.post("/predict", json={"rows": rows_of(few)}).json()["rows"]
        expected = load(imputer_folder).transform(few)
        np.testing.assert_allclose([r["values"]["flow"] for r in filled], expected["flow"], rtol=1e-5)


def test_a_regressor_answers_one_number_for_each_series(regressor_folder, frame):
    few = frame[frame["machine"].isin(["m00", "m03"])]
    with TestClient(create_app(regressor_folder)) as client:
        answer = client.post("/predict", json={"rows": rows_of(few)})
        assert answer.status_code == 200, answer.text
        expected = load(regressor_folder).predict(few)
        assert [each.keys() for each in answer.json()["targets"]] == [{"id", "target"}] * 2
        assert [each["id"] for each in answer.json()["targets"]] == ["m00", "m03"]
        np.testing.assert_allclose([each["target"] for each in answer.json()["targets"]], expected["days"], rtol=1e-5)
        refused(client.post("/predict", json={"rows": rows_of(few), "at": AT}), 422, "a Regressor takes no query times")
        refused(client.post("/update", json=rows_of(few)[0]), 422, "cannot follow series")
        described = client.get("/openapi.json").json()
        assert "Targets" in described["components"]["schemas"]


def test_health_names_all_members(classifier_folder, tmp_path):
    made = load(classifier_folder)
    model = made.members_.models[0]
    made.members_ = replace(made.members_, names=("gru-d", "gru-d"), weights=(0.5, 0.5), models=(model, model))
    with TestClient(create_app(made.save(tmp_path / "model"))) as client:
        health = client.get("/health").json()
        assert health["members"] == ["gru-d", "gru-d"] and health["model"] == "gru-d"
        assert client.get("/openapi.json").json()["info"]["title"] == "acenode: Classifier with gru-d x 2"


# --- a restart --------------------------------------------------------------------------------------------------------


def test_a_restart_loses_nothing(folder, frame, tmp_path):
    rows = rows_of(frame[frame["machine"] == "m05"])
    half = len(rows) // 2
    state = tmp_path / "state.sqlite"
    own = load(folder)
    for part in (rows[:half], rows[half:]):
        with TestClient(create_app(folder, state)) as client:
            for row in part:
                assert client.post("/update", json=row).status_code == 200
                own.update(row["id"], row["time"], row["values"])
    with TestClient(create_app(folder, state)) as client:
        assert client.get("/health").json()["followed"] == 1
        given = client.get("/forecast/m05", params={"at": AT}).json()["forecasts"]
    np.testing.assert_allclose([g["mean"] for g in given], own.predict(at=AT)["mean"], rtol=1e-5)


def test_states_of_another_model_or_version_are_refused(forecaster, folder, tmp_path):
    state, like = tmp_path / "state.sqlite", follow.first(forecaster)
    Store(state, like, "one").close()
    with pytest.raises(StoreError, match="holds states of another model; name another file with --state"):
        create_app(folder, state)
    with sqlite3.connect(state) as base:
        base.execute("UPDATE about SET value = '2' WHERE name = 'format'")
    base.close()
    with pytest.raises(StoreError, match="another version of acenode"):
        Store(state, like, "one")
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at" * 30)
    with pytest.raises(StoreError, match="cannot be used for the states"):
        Store(tmp_path / "text", like, "one")


def test_two_services_cannot_share_a_file(forecaster, tmp_path, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0.01}))
    store = Store(tmp_path / "state.sqlite", follow.first(forecaster), "one")
    with pytest.raises(StoreError, match="stop the other service that uses it"):
        Store(tmp_path / "state.sqlite", follow.first(forecaster), "one")
    store.close()


def test_a_full_disk_is_told_and_changes_nothing(client, monkeypatch):
    good = {"id": "disk", "time": 1.0, "values": {"heat": 0.1}}

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", full)
        refused(client.post("/update", json=good), 503, "could not be stored (database or disk is full)")
    refused(client.get("/forecast/disk?at=3"), 404)
    assert client.post("/update", json=good).json()["observations"] == 1


# --- refusals ---------------------------------------------------------------------------------------------------------

ROW = {"id": "x", "time": 1.0, "values": {"heat": 0.5}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "rows: Field required"),
        ({"rows": [], "at": AT}, "rows:"),
        ({"rows": [ROW]}, "needs the times to forecast"),
        ({"rows": [ROW], "at": []}, "give at least one time"),
        ({"rows": [ROW], "at": [0.5]}, "lies before the first row"),
        ({"rows": [ROW], "at": ["noon"]}, "'noon' is not a number"),
        ({"rows": [ROW], "at": [1e300]}, "more than 50 times as far"),
        ({"rows": [ROW], "at": AT, "more": 1}, "more:"),
        ({"rows": [{**ROW, "values": {"cold": 1}}], "at": AT}, "there is no variable 'cold'; the model has heat, flow"),
        ({"rows": [{**ROW, "values": {"heat": "warm"}}], "at": AT}, "'heat' holds 'warm'"),
        ({"rows": [{**ROW, "values": {"heat": [1]}}], "at": AT}, "rows.0.values.heat"),
        ({"rows": [{**ROW, "values": {"heat": 10**400}}], "at": AT}, "too large"),
        ({"rows": [{**ROW, "values": {}}], "at": AT}, "has no value in any row"),
        ({"rows": [ROW, ROW], "at": AT}, "1"),
        ({"rows": [ROW, {**ROW, "time": "noon"}], "at": AT}, "'time' is text in some rows and a number in others"),
        ({"rows": [{**ROW, "id": None}], "at": AT}, "rows.0.id"),
        ([1], "body"),
    ],
)
def test_bad_predictions_are_refused(client, body, words):
    refused(client.post("/predict", json=body), 422, words)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"time": 3.0}, 409, "'bad' was already observed at 3; give a later time than that, not 3"),
        ({"time": 2.0}, 409, "not 2"),
        ({"time": "noon"}, 422, "'noon' is not a number"),
        ({"time": True}, 422, "time"),
        ({"time": 1e12}, 422, "more than 50 times as far from the last observation of 'bad'"),
        ({"time": 10**400}, 422, "large"),
        ({"values": {"cold": 1.0}}, 422, "there is no variable 'cold'"),
        ({"values": {"heat": 1e39}}, 422, "give a finite number"),
        ({"values": {"heat": "warm"}}, 422, "'heat' is 'warm'; give a number"),
        ({"id": ""}, 422, "id"),
    ],
)
def test_bad_updates_are_refused_and_change_nothing(client, change, status, words):
    good = {"id": "bad", "time": 3.0, "values": {"heat": 0.1}}
    client.post("/update", json=good)
    before = client.get("/forecast/bad?at=5").json()
    refused(client.post("/update", json={**good, "time": 4.0, **change}), status, words)
    assert client.get("/forecast/bad?at=5").json() == before


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/forecast/nobody?at=5", 404, "No series 'nobody' is followed; send its observations to /update first"),
        ("/forecast/nobody", 422, "at"),
        ("/forecast/nobody?at=noon", 422, "at: expected numbers"),
        ("/forecast/nobody?at=nan", 404, ""),
        ("/nowhere", 404, ""),
        ("/update", 405, ""),
    ],
)
def test_bad_addresses_are_refused(client, address, status, words):
    answer = client.get(address)
    assert answer.status_code == status and words in answer.json()["error"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"id": "x", "time": NaN, "values": {"heat": 1}}', 422),
        (b'{"id": "x", "time": 1, "values": {"heat": Infinity}}', 422),
        (b'{"id": "\\ud800", "time": 1, "values": {"heat": 1}}', 422),
        (b'{"id": "x", "time": 1, "values": {"\\ud800": 1}}', 422),
        (b'{"id": "x", "time": 1e999, "values": {"heat": 1}}', 422),
        (b'{"id": "x", "time": ' + b"9" * 5000 + b', "values": {"heat": 1}}', 400),
    ],
)
def test_bodies_that_are_no_json_are_refused(client, content, status):
    refused(client.post("/update", content=content, headers={"content-type": "application/json"}), status)


def test_a_body_that_is_too_long_is_refused(folder, tmp_path):
    with TestClient(create_app(folder, tmp_path / "s.sqlite", most_bytes=1000)) as client:
        refused(client.post("/update", content=b" " * 1001), 413, "The body is longer than 1,000 bytes; send fewer")

        def parts():  # without a length in the head
            yield b" " * 600
            yield b" " * 600

        refused(client.post("/update", content=parts()), 413, "longer than 1,000 bytes")
        assert client.post("/update", json=ROW).status_code == 200


def test_series_that_would_not_fit_into_memory_are_refused(client):
    rows = [{"id": k, "time": 0, "values": {"heat": 1}} for k in range(2000)]
    rows += [{"id": "long", "time": k, "values": {"heat": 1}} for k in range(2000)]
    body = json.dumps({"rows": rows, "at": [1]}, separators=(",", ":"))
    headers = {"content-type": "application/json"}
    refused(client.post("/predict", content=body, headers=headers), 413, "too many or too long series")


def test_a_token_is_needed_where_there_is_one(folder, tmp_path):
    with TestClient(create_app(folder, tmp_path / "s.sqlite", token="sécret")) as client:
        assert client.get("/health").status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic sécret".encode()}):
            answer = client.post("/update", json=ROW, headers=headers)
            refused(answer, 401, "Give the token of this service")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/docs").status_code == 401
        good = {"authorization": "Bearer sécret".encode()}
        assert client.post("/update", json=ROW, headers=good).status_code == 200
