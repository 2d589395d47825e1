"""Whatever is sent, the service answers with a sentence, and lives."""

import json
import os
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings, strategies as st

from acenode.serve.app import create_app

# A body near to a right one, of which each part may be anything.
NUMBERS = st.one_of(
    st.floats(),
    st.integers(),
    st.integers(-40, 60),
    st.floats(0, 60),
    st.sampled_from([10**400, -(10**30), 1e-320, 3.5e38, -0.0]),
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", " ", "nan", "1", "m01", "0001-01-01", "9999-12-31T23:59:59+14:00", "a/b", "\x00", "'; --"]),
)
SCALARS = st.one_of(NUMBERS, TEXTS, st.booleans(), st.none())
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


def mostly(good):
    """Four of five are good ones."""
    return st.integers(0, 4).flatmap(lambda k: JUNK if k == 0 else good)


VALUES = st.dictionaries(st.sampled_from(["heat", "flow"]) | TEXTS, mostly(st.floats(-30, 30)), max_size=3)
ROWS = st.fixed_dictionaries(
    {
        "id": mostly(st.sampled_from(["a", "b", 3])),
        "time": mostly(st.integers(0, 40)),
        "values": mostly(VALUES),
    },
    optional={"more": JUNK},
)
PREDICT = mostly(
    st.fixed_dictionaries(
        {"rows": mostly(st.lists(ROWS, max_size=4))}, optional={"at": mostly(st.lists(mostly(NUMBERS), max_size=3))}
    )
)
BODIES = st.one_of(
    PREDICT.map(lambda body: ("/predict", json.dumps(body).encode())),
    mostly(ROWS).map(lambda body: ("/update", json.dumps(body).encode())),
    st.tuples(st.sampled_from(["/predict", "/update"]), st.binary(max_size=60)),
)
GETS = st.tuples(mostly(st.sampled_from(["a", "b", "3"])).map(str), st.lists(SCALARS.map(str), max_size=3))


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    app = create_app(folder, tmp_path_factory.mktemp("state") / "state.sqlite")
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
        assert client.get("/health").json()["status"] == "ok"


def check(answer):
    assert answer.status_code < 500, answer.text
    content = json.loads(answer.content, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    if answer.status_code >= 400:
        said = content["error"]
        assert said.endswith("."), said  # what the library did not foresee does not end so


def send(client, request):
    address, body = request
    check(client.post(address, content=body, headers={"content-type": "application/json"}))


def ask(client, request):
    id, at = request
    check(client.get(f"/forecast/{quote(id.encode('utf-8', 'replace'))}", params={"at": at}))


def campaign(count):
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@campaign(80)
@given(request=BODIES)
@example(request=("/update", b'{"id": "a", "time": 1, "values": {"heat": 1}}'))
def test_no_body_takes_the_service_down(client, request):
    send(client, request)


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
@campaign(40)
@given(request=GETS)
def test_no_address_takes_the_service_down(client, request):
    ask(client, request)


@pytest.mark.skipif("ACENODE_CAMPAIGN" not in os.environ, reason="takes minutes; set ACENODE_CAMPAIGN to run it")
@pytest.mark.parametrize(("strategy", "ask", "count"), [(BODIES, send, 9000), (GETS, ask, 1500)])
def test_ten_thousand_requests_do_not_take_the_service_down(client, strategy, ask, count):
    sent = []

    @campaign(count)
    @given(request=strategy)
    def run(request):
        sent.append(ask(client, request))

    run()
    assert len(sent) >= count
