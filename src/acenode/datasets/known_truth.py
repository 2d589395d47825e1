"""Systems whose influence on each other is known: noisy, irregular observations, and the truth behind them.

Real data never say who influences whom; these say it at every moment, so that an attention can be compared with it
(`tasks.metrics.edge_auc`, `influence_correlation`). All of them are

    dx/dt = slope(x, W),    W_ij the influence of unit j on unit i, constant but for one switch in some of them,

solved by an adaptive Runge-Kutta method whose steps never cross a switch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..series import Panel, Query, extrapolate, series as one_series, stack

STEPS = 1000  # times at which a row may lie
CONTEXT = 0.7  # of the span
SWITCH = (0.2, 0.4)  # parts of the span between which the influence may switch


@dataclass(frozen=True)
class Rows:
    """How a system is observed: so many rows in the first 70 % of the span, the context, and in the rest, the query.

    Rows lie at random among 1,000 equal steps. `noise` and `query_noise` are the standard deviations of what is added
    to the values of either.
    """

    context: int = 40
    query: int = 25
    noise: float = 0.05
    query_noise: float = 0.0

    def __post_init__(self):
        most = round(CONTEXT * STEPS)
        if not 1 <= self.context <= most or not 1 <= self.query <= STEPS - most:
            raise ValueError(f"{self}: needs 1 to {most} context rows and 1 to {STEPS - most} query rows.")
        if not (self.noise >= 0 and self.query_noise >= 0):
            raise ValueError(f"{self}: needs a noise and a query_noise that are not negative.")

    def times(self, samples: int, span: float, random: np.random.Generator) -> Float[np.ndarray, "samples rows"]:
        """When the rows lie, sorted."""
        last = round(CONTEXT * STEPS)
        parts = ((1, last, self.context), (last + 1, STEPS, self.query))
        steps = [[random.choice(np.arange(a, b + 1), n, replace=False) for a, b, n in parts] for _ in range(samples)]
        return span / STEPS * np.sort([np.concatenate(both) for both in steps], axis=1)

    def deviation(self) -> Float[np.ndarray, "rows 1"]:
        """The noise of each row."""
        return np.repeat([self.noise, self.query_noise], [self.context, self.query])[:, None]


@dataclass(frozen=True)
class KnownTruth:
    """Observations of several units, and the truth.

    `panel` has all rows of a sample; those up to time `after` are its context. The channels of a unit are side by side:
    variable `unit * channels + channel`. `truth` is the rows without noise. `influence` is known at `moments`: entry
    (i, j) is that of unit j on unit i. `switch` is when it changes, infinite where it never does.
    """

    panel: Panel
    truth: Float[np.ndarray, "samples rows variables"]
    influence: Float[np.ndarray, "samples moments units units"]
    moments: Float[np.ndarray, " moments"]
    switch: Float[np.ndarray, " samples"]
    after: float
    units: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.panel)

    @property
    def channels(self) -> int:
        return len(self.panel.variables) // len(self.units)

    def query(self) -> Query:
        """The task: the rows after the context, from the context."""
        return extrapolate(self.panel.series, self.after)


Slope = Callable[[np.ndarray, np.ndarray], np.ndarray]  # from x (samples, units, ...) and W (samples, units, units)


def observe(
    slope: Slope,
    start: Float[np.ndarray, "samples units ..."],
    stages: Float[np.ndarray, "samples stages units units"],
    look: Callable[[np.ndarray], np.ndarray],
    span: float,
    rows: Rows,
    random: np.random.Generator,
    units: str,
    channels: tuple[str, ...],
    moments: int = 31,
) -> KnownTruth:
    """Solve a system from `start`, and observe it.

    **Arguments:**

    - `stages`: the influence before and after the switch, which is drawn for each sample; of one stage there is none.
    - `look`: from states (samples, rows, units, ...) to the channels (samples, rows, units, channels).
    - `units`, `channels`: the name of a unit, such as "region", and those of its channels.
    """
    samples, count = start.shape[:2]
    times = rows.times(samples, span, random)
    switches = stages.shape[1] == 2
    switch = span * random.uniform(*SWITCH, samples) if switches else np.full(samples, np.inf)
    truth = look(solve(slope, start, stages, np.minimum(switch, span), times)).reshape(*times.shape, -1)
    values = truth + rows.deviation() * random.normal(0.0, 1.0, truth.shape)
    names = tuple(f"{units} {number}" for number in range(1, count + 1))
    variables = tuple(f"{name} {channel}".strip() for name in names for channel in channels)
    panel = Panel(stack([one_series(*each) for each in zip(times, values, strict=True)]), np.arange(samples), variables)
    at = np.linspace(0.0, span, moments)
    stage = (at >= switch[:, None]).astype(int)
    influence = stages[np.arange(samples)[:, None], stage].astype(np.float32)
    return KnownTruth(panel, truth.astype(np.float32), influence, at, switch, CONTEXT * span, names)


def solve(
    slope: Slope,
    start: Float[np.ndarray, "samples units ..."],
    stages: Float[np.ndarray, "samples stages units units"],
    switch: Float[np.ndarray, " samples"],
    times: Float[np.ndarray, "samples rows"],
) -> Float[np.ndarray, "samples rows units ..."]:
    """The states at `times`, all samples at once: from each row to the next, every sample over its own gap."""
    from scipy.integrate import solve_ivp  # slow to import

    everything = np.concatenate([np.zeros((len(start), 1)), times, switch[:, None]], axis=1)
    order = np.argsort(everything, axis=1, kind="stable")
    begins = np.take_along_axis(everything, order, axis=1)
    sample = np.arange(len(start))
    state, states = start, [start]
    for begin, end in zip(begins.T[:-1], begins.T[1:], strict=True):
        gap = (end - begin).reshape(-1, *(1,) * (start.ndim - 1))
        weights = stages[sample, np.minimum((begin >= switch).astype(int), stages.shape[1] - 1)]

        def moved(_, x, gap=gap, weights=weights):
            return (gap * slope(x.reshape(start.shape), weights)).ravel()

        solved = solve_ivp(moved, (0.0, 1.0), state.ravel(), rtol=1e-6, atol=1e-8)
        state = solved.y[:, -1].reshape(start.shape)
        states.append(state)
    place = np.argsort(order, axis=1)[:, 1:-1]  # of the rows, without the start and the switch
    return np.stack(states, axis=1)[sample[:, None], place]


def random_graph(
    shape: tuple[int, ...], units: int, density: float, random: np.random.Generator
) -> Float[np.ndarray, "... units units"]:
    """Directed graphs: 1 for an edge, with probability `density`, else 0; none from a unit to itself."""
    edges = random.random((*shape, units, units)) < density
    return np.where(np.eye(units, dtype=bool), 0.0, edges)


def check_size(samples: int, units: int, span: float) -> None:
    """Refuse a system that cannot be generated."""
    if samples < 1 or units < 2 or not span > 0:
        raise ValueError(
            f"generate(samples={samples}, {units} units, span={span}): needs at least one sample and two units, and a "
            "positive span."
        )
