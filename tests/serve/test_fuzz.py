"""Whatever is sent, the service answers with a sentence, and lives."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given, strategies as st

from acenode.serve.app import create_app

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.campaign.requests import BODIES, GETS, SCALARS, TEXTS, ask, examples, mostly, send

# Rows with words and static values.
CELLS = {
    "heat": st.floats(-30, 30),
    "colour": st.sampled_from(["red", "blue", "pink", " "]) | TEXTS,
    "size": st.sampled_from([1.5, 3.0]),
    "make": st.sampled_from(["old", "new"]),
}
ROUGH_ROWS = st.fixed_dictionaries(
    {
        "id": mostly(st.sampled_from(["a", "b"])),
        "time": mostly(st.integers(0, 40)),
        "values": mostly(st.fixed_dictionaries({}, optional={name: mostly(cell) for name, cell in CELLS.items()})),
    }
)
TABLES = st.lists(ROUGH_ROWS, max_size=4)
AT = st.lists(st.integers(40, 60) | mostly(ROUGH_ROWS) | SCALARS, max_size=3)


def as_request(address, body):
    return address, json.dumps(body).encode()


@contextmanager
def served(folder, place):
    """A client of a service that must still be well at the end."""
    app = create_app(folder, place / "state.sqlite")
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
        assert client.get("/health").json()["status"] == "ok"


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    with served(folder, tmp_path_factory.mktemp("state")) as client:
        yield client


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@examples(80)
@given(request=BODIES)
@example(request=("/update", b'{"id": "a", "time": 1, "values": {"heat": 1}}'))
def test_no_body_takes_the_service_down(client, request):
    send(client, request)


@pytest.fixture(scope="module")
def labels_client(labels_folder):
    with TestClient(create_app(labels_folder), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def rough_client(rough_folder, tmp_path_factory):
    with served(rough_folder, tmp_path_factory.mktemp("state")) as client:
        yield client


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@examples(40)
@given(rows=TABLES)
@example(rows=[{"id": "a", "time": 1, "values": {"heat": 1, "colour": "red", "size": 1.5, "make": "old"}}])
def test_no_table_with_words_takes_several_labels_down(labels_client, rows):
    send(labels_client, as_request("/predict", {"rows": rows}))


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@examples(40)
@given(rows=TABLES, at=AT)
@example(rows=[{"id": "a", "time": 1, "values": {"heat": 1}}], at=[{"id": "a", "time": 2, "values": {}}])
def test_no_rows_with_words_take_a_followed_series_down(rough_client, rows, at):
    send(rough_client, as_request("/predict", {"rows": rows, "at": at}))
    for row in rows:
        send(rough_client, as_request("/update", row))


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@examples(40)
@given(request=GETS)
def test_no_address_takes_the_service_down(client, request):
    ask(client, request)
