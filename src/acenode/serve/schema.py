"""What the service takes and gives, as JSON."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, Tag

Id = Annotated[Annotated[StrictStr, Field(min_length=1, max_length=256)] | StrictInt, Field(examples=["m01"])]
Time = Annotated[
    StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)] | Annotated[StrictStr, Field(max_length=64)],
    Field(description="A number, or a date such as 2024-01-31T14:00, as the training table has.", examples=[26.5]),
]
Value = (
    StrictBool
    | StrictInt
    | Annotated[StrictFloat, Field(allow_inf_nan=False)]
    | Annotated[StrictStr, Field(max_length=256)]
    | None
)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Observation(_Body):
    """One row: what was observed of a series at a time. A variable that is null or left out was not observed."""

    id: Id
    time: Time
    values: Annotated[dict[str, Value], Field(description="Variables by name.")]


TAGS = ("query-time", "query-row")
At = Annotated[
    Annotated[Time, Tag(TAGS[0])] | Annotated[Observation, Tag(TAGS[1])],
    Discriminator(lambda given: TAGS[isinstance(given, dict | Observation)]),
]


class PredictRequest(_Body):
    """Whole series, and for a forecaster the times to forecast."""

    rows: Annotated[list[Observation], Field(min_length=1)]
    at: Annotated[
        list[At] | None,
        Field(
            max_length=10_000,
            description="For a forecaster only: query times for every series, or rows with the id, the query time and "
            "the values of the columns that are known ahead.",
        ),
    ] = None


class Updated(BaseModel):
    """The observation is stored."""

    id: str
    time: Any
    observations: Annotated[int, Field(description="How many there are of this series.")]
    warnings: list[str]


class Forecast(BaseModel):
    """One variable at one query time. There are quantiles beside the mean, by the names q0.05 and so on."""

    model_config = ConfigDict(extra="allow")
    id: Any
    time: Any
    variable: str
    mean: Annotated[float | None, Field(description="null where the solver failed")]


class Forecasts(BaseModel):
    """Forecasts, and what is to be said of them."""

    forecasts: list[Forecast]
    warnings: list[str]


class Label(BaseModel):
    """The likeliest label of a series, and the probability of each; of several labels, both by their names."""

    id: Any
    label: Any
    probabilities: dict[str, float | None] | dict[str, dict[str, float | None]]


class Labels(BaseModel):
    """Labels, and what is to be said of them."""

    labels: list[Label]
    warnings: list[str]


class Target(BaseModel):
    """The expected target of a series."""

    id: Any
    target: float | None


class Targets(BaseModel):
    """Targets, and what is to be said of them."""

    targets: list[Target]
    warnings: list[str]


class Filled(BaseModel):
    """The rows with every blank filled, and what is to be said of them."""

    rows: list[Observation]
    warnings: list[str]


class Health(BaseModel):
    """Whether the service can answer."""

    status: str
    version: str
    estimator: str
    model: Annotated[str, Field(description="The best of the members.")]
    members: Annotated[list[str], Field(description="All models that answer together.")]
    followed: Annotated[int | None, Field(description="Series followed; null where the model cannot follow.")]


class Problem(BaseModel):
    """Why there is no answer."""

    error: str
