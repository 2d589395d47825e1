"""An example of a request that the model takes, for the page of the interface."""

from datetime import datetime, timedelta
from typing import Any

from . import records

_DATE = datetime(2024, 1, 31, 14)


def example(estimator: Any) -> dict[str, Any]:
    """A body for /predict: one row of typical values, and for a forecaster one query time."""
    means = zip(estimator.columns_.values, estimator.scaler_.shift, strict=True)
    typical = {str(name): float(f"{mean:.3g}") for name, mean in means}
    typical |= {str(name): words[0] for name, words in estimator.categories_.items()}
    values = {name: typical[name] for name in records.variables(estimator) if name in typical}
    later = float(f"{estimator.settings_.unit:.1g}")
    body: dict[str, Any] = {"rows": [{"id": "m01", "time": _time(estimator, 0.0), "values": values}]}
    if estimator.task != "forecast":
        return body
    at, ahead = _time(estimator, later), records.known_ahead(estimator)
    row = {"id": "m01", "time": at, "values": {name: values[name] for name in ahead}}
    return {**body, "at": [row if ahead else at]}


def _time(estimator: Any, later: float) -> float | str:
    if estimator.clock_.kind == "number":
        return 26.5 + later
    zone = "" if estimator.clock_.zone is None else "+00:00"
    return f"{(_DATE + timedelta(seconds=later)).isoformat()}{zone}"
