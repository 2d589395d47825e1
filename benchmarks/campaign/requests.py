"""Part 2, the service: whatever is sent, it answers with a sentence, and lives."""

import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings, strategies as st

from acenode.estimators import Forecaster
from acenode.serve.app import create_app

from .samples import SMALL, machines, untrained
from .tally import Tally

REQUESTS = {"body": 9000, "address": 1500}

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


def check(answer: Any) -> None:
    """Raise unless it is JSON, and a sentence where it is a refusal."""
    assert answer.status_code < 500, answer.text
    content = json.loads(answer.content, parse_constant=_no_json)
    if answer.status_code >= 400:
        said = content["error"]
        assert said.endswith("."), said  # what the library did not foresee does not end so


def _no_json(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def send(client: TestClient, request: tuple[str, bytes]) -> None:
    address, body = request
    check(client.post(address, content=body, headers={"content-type": "application/json"}))


def ask(client: TestClient, request: tuple[str, list[str]]) -> None:
    id, at = request
    check(client.get(f"/forecast/{quote(id.encode('utf-8', 'replace'))}", params={"at": at}))


def examples(count: int) -> settings:
    """So many, the same every time."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def run(scale: float) -> dict[str, Any]:
    """Send 10,500 requests at scale 1."""
    tally = Tally()
    warnings.filterwarnings("ignore", "Do not use the .random. module")
    with tempfile.TemporaryDirectory() as place:
        folder = untrained(Forecaster(**SMALL, model="gru-ode-bayes"), machines(12)).save(Path(place) / "model")
        app = create_app(folder, Path(place) / "state.sqlite")
        with TestClient(app, raise_server_exceptions=False) as client:
            for kind, strategy, sent in (("body", BODIES, send), ("address", GETS, ask)):
                _send_all(kind, strategy, sent, client, max(20, round(REQUESTS[kind] * scale)), tally)
                healthy = client.get("/health").json()["status"] == "ok"
                tally.add("health", None if healthy else f"it is ill after {kind}")
    return tally.result()


def _send_all(kind: str, strategy: Any, sent: Callable, client: TestClient, count: int, tally: Tally) -> None:
    @examples(count)
    @given(request=strategy)
    def each(request: Any) -> None:
        try:
            sent(client, request)
            tally.add(kind)
        except Exception as error:  # whatever it is, it is a loss
            tally.add(kind, f"{request!r}: {type(error).__name__}: {error}"[:600])

    each()
