"""Explicit Runge-Kutta methods as data: one `Tableau` each, and how each fills the gap between two steps."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Tableau:
    """Coefficients of one explicit Runge-Kutta method.

    `a[i]` and `c[i]` give stage `i + 1`; `b` the step; `b_error` the embedded error estimate, `None` where
    the method has none. `fsal` says that the last stage is the slope at the end of the step.
    `dense` names the interpolant between steps, and `b_middle` the weights of its mid-point.
    """

    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    b_error: tuple[float, ...] | None = None
    fsal: bool = False
    dense: Literal["linear", "cubic", "quartic"] = "cubic"
    b_middle: tuple[float, ...] | None = None

    @property
    def adaptive(self) -> bool:
        return self.b_error is not None

    @property
    def evaluations_per_step(self) -> int:
        """Calls of the vector field for one more step, the slope at its start being known."""
        return len(self.a) + (not self.fsal)


_DOPRI5_B = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
# Shampine's choice of the fourth-order companion, as in the solvers this method is compared with.
_DOPRI5_B4 = (1951 / 21600, 0.0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60)

DOPRI5 = Tableau(
    order=5,
    a=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _DOPRI5_B,
    ),
    b=(*_DOPRI5_B, 0.0),
    c=(1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    b_error=tuple(x - y for x, y in zip((*_DOPRI5_B, 0.0), _DOPRI5_B4, strict=True)),
    fsal=True,
    dense="quartic",
    b_middle=(
        6025192743 / 60171106304,
        0.0,
        51252292925 / 130801643196,
        -2691868925 / 90256659456,
        187940372067 / 3189068634112,
        -1776094331 / 39487288512,
        11237099 / 470086768,
    ),
)

_TSIT5_B = (
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
)

TSIT5 = Tableau(
    order=5,
    a=(
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        _TSIT5_B,
    ),
    b=(*_TSIT5_B, 0.0),
    c=(0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
    b_error=(
        0.0017800110522257714,
        0.0008164344596567463,
        -0.007880878010261994,
        0.144711007173263,
        -0.5823571654525552,
        0.45808210592918686,
        -1 / 66,
    ),
    fsal=True,
    dense="quartic",
    b_middle=(
        0.10741235230096871,
        0.01135625,
        0.39560903056045305,
        -0.34475214352593553,
        1.3161853649581645,
        -1.0170608542936508,
        0.031249999999999993,
    ),
)

METHODS: dict[str, Tableau] = {
    "euler": Tableau(order=1, a=(), b=(1.0,), c=(), dense="linear"),
    "midpoint": Tableau(order=2, a=((0.5,),), b=(0.0, 1.0), c=(0.5,)),
    "heun": Tableau(order=2, a=((1.0,),), b=(0.5, 0.5), c=(1.0,)),
    "rk4": Tableau(
        order=4,
        a=((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
        b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
        c=(0.5, 0.5, 1.0),
    ),
    "rk4_38": Tableau(
        order=4,
        a=((1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
        b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
        c=(1 / 3, 2 / 3, 1.0),
    ),
    "dopri5": DOPRI5,
    "tsit5": TSIT5,
}
