"""Whatever is sent, the service answers with a sentence, and lives."""

import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given

from acenode.serve.app import create_app

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.campaign.requests import BODIES, GETS, ask, examples, send


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    app = create_app(folder, tmp_path_factory.mktemp("state") / "state.sqlite")
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
        assert client.get("/health").json()["status"] == "ok"


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@examples(80)
@given(request=BODIES)
@example(request=("/update", b'{"id": "a", "time": 1, "values": {"heat": 1}}'))
def test_no_body_takes_the_service_down(client, request):
    send(client, request)


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@examples(40)
@given(request=GETS)
def test_no_address_takes_the_service_down(client, request):
    ask(client, request)
