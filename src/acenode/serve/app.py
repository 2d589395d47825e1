"""The service as a FastAPI application."""

import asyncio
import copy
import json
import logging
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException

from .. import __version__
from ..estimators import follow, load
from . import records, schema
from .example import example
from .guard import Guard
from .page import page
from .store import Store, fingerprint
from .updates import Busy, Updates

MOST_BYTES = 2**20
_MOST_CELLS = 1_000_000  # series times rows of the longest, and series times query times
_MOST_WAITING = 32  # predictions that wait for others

log = logging.getLogger("acenode.serve")


class Json(Response):
    """JSON in ASCII, so that no text that came in can fail to go out."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def create_app(
    folder: str | FilePath,
    state: str | FilePath | None = None,
    *,
    token: str | None = None,
    most_bytes: int = MOST_BYTES,
) -> FastAPI:
    """The service of a saved model.

    **Arguments:**

    - `folder`: the saved model.
    - `state`: the file for the states of followed series; beside the folder if not given.
    - `token`: if given, requests need it (`Authorization: Bearer TOKEN`), but for /health.
    - `most_bytes`: the longest body.
    """
    folder = FilePath(folder)
    service = Service(load(folder), folder, state_file(folder) if state is None else FilePath(state))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.close()

    app = FastAPI(
        title=f"acenode: {type(service.estimator).__name__} with {service.models}",
        description=f"Variables: {', '.join(service.names)}. Times are {service.estimator.clock_.kind}s.",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Guard, most=most_bytes, token=token)
    _add_errors(app)
    _add_routes(app, service)
    return app


def state_file(folder: FilePath) -> FilePath:
    """Where the states of followed series are by default: beside the folder, which is replaced by the next training."""
    place = folder.resolve()
    return place.with_name(f"{place.name}-state.sqlite")


class Service:
    """A loaded model, the series that it follows, and one thread that predicts."""

    def __init__(self, estimator: Any, folder: FilePath, state: FilePath):
        self.estimator = estimator
        self.names = records.variables(estimator)
        self.models = str(estimator.members_)
        self.store: Store | None = None
        self.updates: Updates | None = None
        self._waiting = 0
        try:
            follow.check_followable(estimator)
        except ValueError:
            return
        # Now, not at the first request: what is wrong with the file is to be told to who starts the service.
        self.store = Store(state, follow.first(estimator), fingerprint(folder))

    def start(self) -> None:
        self._thread = ThreadPoolExecutor(1, "acenode-predict")
        if self.store is not None:
            self.updates = Updates(self.estimator, self.store)
            self.updates.compile()
            self.updates.start()

    def close(self) -> None:
        if self.updates is not None:
            self.updates.close()
        self._thread.shutdown()
        if self.store is not None:
            self.store.close()

    def following(self) -> tuple[Store, Updates]:
        """The followed series; refused for a model that cannot follow."""
        if self.store is None or self.updates is None:
            inputs = " with columns that are known ahead" if self.estimator.columns_.future else ""
            raise ValueError(f"{self.models}{inputs} cannot follow series; send whole series to /predict instead.")
        return self.store, self.updates

    async def compute(self, call: Callable[[], Any]) -> tuple[Any, list[str]]:
        """What `call` gives in the thread that predicts, and the warnings it gave."""
        if self._waiting >= _MOST_WAITING:
            raise Busy("The service is busy; try again in a moment.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, _with_warnings, call)
        finally:
            self._waiting -= 1

    def predict(self, request: schema.PredictRequest) -> dict[str, Any]:
        """The answer to /predict but for the warnings."""
        estimator, at = self.estimator, request.at or ()
        if (estimator.task == "forecast") != (request.at is not None):
            has = "needs the times to forecast" if estimator.task == "forecast" else "takes no query times"
            raise ValueError(f"at: a {type(estimator).__name__} {has}; {'give' if request.at is None else 'omit'} it.")
        counts = Counter(str(row.id) for row in request.rows)
        queried = Counter(str(each.id) for each in at if isinstance(each, schema.Observation))
        if len(counts) * max(max(counts.values()), max(queried.values(), default=len(at))) > _MOST_CELLS:
            raise HTTPException(413, "There are too many or too long series; send fewer at a time.")
        frame = records.to_frame(estimator, request.rows)
        if estimator.task == "forecast":
            answer = estimator.predict(frame, at=records.queries(estimator, at))
            return {"forecasts": records.forecasts(estimator, answer)}
        if estimator.task == "classify":
            return {"labels": records.labels(estimator, frame)}
        if estimator.task == "regress":
            return {"targets": records.targets(estimator, estimator.predict(frame))}
        return {"rows": records.filled(estimator, estimator.transform(frame))}

    def forecast(self, id: str, at: list[Any]) -> dict[str, Any]:
        """The answer to /forecast but for the warnings."""
        store, _ = self.following()
        found = store.get([id])
        if not found:
            raise HTTPException(404, f"No series {id!r} is followed; send its observations to /update first.")
        one = copy.copy(self.estimator)
        one.memory_ = {id: found[id].followed}
        return {"forecasts": records.forecasts(one, one.predict(at=at))}

    def times(self, at: list[str]) -> list[Any]:
        """Query times of an address: numbers, or dates as text."""
        if self.estimator.clock_.kind != "number":
            return at
        try:
            return [float(each) for each in at]
        except ValueError as error:
            raise ValueError("at: expected numbers, as the times of the model are.") from error


def _with_warnings(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        answer = call()
    return answer, list(dict.fromkeys(str(each.message) for each in caught if each.category is UserWarning))


def _add_routes(app: FastAPI, service: Service) -> None:
    estimator = service.estimator
    answer: Any = {
        "forecast": schema.Forecasts,
        "classify": schema.Labels,
        "regress": schema.Targets,
        "impute": schema.Filled,
    }[estimator.task]
    problems: dict[int | str, dict[str, Any]] = {
        code: {"model": schema.Problem, "description": words}
        for code, words in {
            400: "The body is no JSON.",
            401: "The token is missing or wrong.",
            413: "The body is too long.",
            422: "The body does not fit the model.",
            503: "The service is busy; try again.",
        }.items()
    }
    sample = example(estimator)

    def shown(body: Any) -> dict[str, Any]:
        return {"requestBody": {"content": {"application/json": {"example": body}}}}

    @app.post("/predict", response_model=answer, responses=problems, openapi_extra=shown(sample))
    async def predict(body: schema.PredictRequest) -> Response:
        """Predict from whole series: forecasts, labels, targets or filled blanks, as the model was trained for."""
        content, said = await service.compute(lambda: service.predict(body))
        return Json({**content, "warnings": said})

    @app.post(
        "/update",
        response_model=schema.Updated,
        responses={**problems, 409: {"model": schema.Problem, "description": "The time is not after the last one."}},
        openapi_extra=shown(sample["rows"][0]),
    )
    async def update(body: schema.Observation) -> Response:
        """Take in one observation of a followed series, an old or a new one. The answer says that it is stored."""
        _, updates = service.following()
        values = {service.names.get(name, name): value for name, value in body.values.items()}
        id, said = str(body.id), list[str]()
        kept = await updates.take(follow.read_row(estimator, id, body.time, values, said.append))
        return Json({"id": id, "time": body.time, "observations": kept.observations, "warnings": said})

    @app.get(
        "/forecast/{id:path}",
        response_model=schema.Forecasts,
        responses={**problems, 404: {"model": schema.Problem, "description": "No such series is followed."}},
    )
    async def forecast(
        id: Annotated[str, Path(description="The series, as given to /update.", max_length=256)],
        at: Annotated[list[str], Query(description="A time to forecast; may be repeated.", max_length=1000)],
    ) -> Response:
        """Forecast a followed series from what /update was given of it."""
        content, said = await service.compute(lambda: service.forecast(id, service.times(at)))
        return Json({**content, "warnings": said})

    @app.get("/health", response_model=schema.Health)
    async def health() -> Response:
        """Whether the service can answer."""
        alive = service.updates is None or service.updates.alive
        followed = None if service.store is None else len(service.store)
        content = {
            "status": "ok" if alive else "failed",
            "version": __version__,
            "estimator": type(estimator).__name__,
            "model": estimator.settings_.model,
            "members": list(estimator.members_.names),
            "followed": followed,
        }
        return Json(content, 200 if alive else 503)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()))


def _add_errors(app: FastAPI) -> None:
    """Every refusal is one sentence of JSON."""

    def problem(status: int, words: str | None = None) -> Callable[[Request, Exception], Awaitable[Response]]:
        async def answer(request: Request, error: Exception) -> Response:
            return Json({"error": str(error) if words is None else words}, status)

        return answer

    async def failed(request: Request, error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return Json({"error": "The service failed to answer this request; its log says why."}, 500)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, AnyHTTPException)
        words = str(error.detail).rstrip(".")
        return Json({"error": f"{words}."}, error.status_code, headers=dict(error.headers or {}))

    async def misfit(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return Json({"error": "The body is no JSON."}, 400)
        place = [str(part)[:64] for part in first["loc"] if isinstance(part, int) or part not in _INNER]
        return Json({"error": f"{'.'.join(place) or 'body'}: {first['msg']}."}, 422)

    app.add_exception_handler(follow.NotLater, problem(409))
    app.add_exception_handler(ValueError, problem(422))
    app.add_exception_handler(OverflowError, problem(422, "A number or date is too large."))
    app.add_exception_handler(Busy, problem(503))
    app.add_exception_handler(AnyHTTPException, http)
    app.add_exception_handler(RequestValidationError, misfit)
    app.add_exception_handler(Exception, failed)


# of a union, not of the user's body
_INNER = ("int", "float", "str", "bool", "constrained-str", "function-after", *schema.TAGS)
