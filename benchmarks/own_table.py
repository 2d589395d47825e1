"""How long the estimators take on tables such as users bring, model by model, and how good they are there.

Three tables: windows of hourly weather (made up), the mortality of PhysioNet 2012 (where its files are), and 10,000
series of 100 rows (made up). Each model is trained as `acenode train` does and evaluated on series it has not seen;
`auto` on top, under its own budget. Mortality is cross-validated with `--folds`.
"""

import os
import time

import numpy as np
import polars as pl
from record import arguments, save, show

LIMITS = {"weather": 60.0, "mortality": 360.0, "many": 600.0}  # seconds for one named model on two cores


def weather(series: int = 219, rows: int = 33, seed: int = 0) -> pl.DataFrame:
    """Two days each: a daily cycle, a level that differs, weather that passes in half a day; a tenth is blank."""
    rng = np.random.default_rng(seed)
    span = max(48, 2 * rows)
    frames = []
    for k in range(series):
        hour = np.sort(rng.choice(span, rows, replace=False)).astype(float)
        phase, level = rng.uniform(0, 24), rng.normal(0, 2)
        state, before = rng.normal(size=6), hour[0]
        values = np.empty((rows, 6))
        for i, now in enumerate(hour):
            stays = np.exp(-(now - before) / 12)
            state, before = stays * state + np.sqrt(1 - stays**2) * 0.7 * rng.normal(size=6), now
            sun = np.sin(2 * np.pi * (now + phase) / 24)
            centre = (10 + level + 5 * sun, 60 - 15 * sun - level, 1013 + 2 * level, 5 + sun, 180, 3)
            values[i] = np.asarray(centre) + state * np.asarray((1.5, 5, 4, 1.5, 60, 1))
        values[rng.random(values.shape) < 0.1] = np.nan
        columns = dict(
            zip(("temperature", "humidity", "pressure", "wind", "direction", "cloud"), values.T, strict=True)
        )
        frames.append(pl.DataFrame({"id": np.full(rows, k), "hour": hour, **columns}))
    return pl.concat(frames).with_columns(pl.selectors.float().fill_nan(None))


def tables(given) -> dict[str, tuple[str, dict, pl.DataFrame]]:
    """For each table the estimator, its arguments, and the rows."""
    many = (200, 20) if given.quick else (10_000, 100)
    found = {"weather": ("Forecaster", {"id": "id", "time": "hour"}, weather(60) if given.quick else weather())}
    if given.mortality is not None:
        labelled = {"id": given.id, "time": given.time, "label": given.label}
        found["mortality"] = ("Classifier", labelled, pl.read_parquet(given.mortality))
    found["many"] = ("Forecaster", {"id": "id", "time": "hour"}, weather(*many, seed=1))
    return {name: found[name] for name in given.tables or found if name in found}


def trained(kind: str, arguments: dict, frame: pl.DataFrame, model: str, fold: int, given) -> dict:
    """One model trained without a fifth of the series, which it is evaluated on."""
    import acenode

    ids = frame[arguments["id"]].unique(maintain_order=True)
    held = ids.gather(np.flatnonzero(np.arange(len(ids)) % 5 == fold))
    inside = frame[arguments["id"]].is_in(held.implode())
    options = {"epochs": 2, "hidden": 8} if given.quick else {}
    minutes = given.minutes if model == "auto" else given.named_minutes
    estimator = getattr(acenode, kind)(**arguments, model=model, minutes=minutes, **options)
    began = time.perf_counter()
    estimator.fit(frame.filter(~inside))
    seconds = time.perf_counter() - began
    metrics = estimator.evaluate(frame.filter(inside))
    epochs = estimator.summary_.epochs
    row = {"model": model, "fold": fold, "seconds": round(seconds, 1), "epochs": epochs, **metrics}
    if model == "auto":
        row |= {"chosen": list(estimator.members_.names), "weights": list(estimator.members_.weights)}
    return row


def main() -> None:
    os.environ.setdefault("ACENODE_COMPILATION_CACHE", "off")  # a user's first run compiles
    parser = arguments(__doc__.splitlines()[0], "own_table")
    parser.add_argument("--tables", nargs="*", choices=tuple(LIMITS), help="which of them (default: all)")
    parser.add_argument("--models", nargs="*", help="which models (default: all of `acenode models`, and auto)")
    parser.add_argument("--folds", type=int, default=1, help="of five, how many to test on (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=5.0, help="the budget of auto (default: %(default)s)")
    parser.add_argument("--named-minutes", type=float, help="the budget of named models (default: the estimators')")
    parser.add_argument("--mortality", help="from `acenode data export physionet --labelled --out FILE.parquet`")
    parser.add_argument("--id", default="record", help="its column of ids (default: %(default)s)")
    parser.add_argument("--time", default="hour", help="its column of times (default: %(default)s)")
    parser.add_argument("--label", default="died", help="its column of outcomes (default: %(default)s)")
    given = parser.parse_args()
    from acenode.estimators import MODELS
    from acenode.estimators.budget import MINUTES

    found = {}
    for name, (kind, arguments_, frame) in tables(given).items():
        rows = []
        for model in given.models or ("auto", *MODELS):
            for fold in range(given.folds):
                rows.append(trained(kind, arguments_, frame, model, fold, given))
                print(rows[-1], flush=True)
        found[name] = {"limit_s": LIMITS[name], "series": frame[arguments_["id"]].n_unique(), "rows": rows}
        quality = "auc" if "auc" in rows[0] else "mse"
        shown = [(r["model"], r["seconds"], r["epochs"], f"{r[quality]:.4f}") for r in rows]
        print(f"\n{name}: at most {LIMITS[name]:.0f} s for a named model")
        show(("model", "seconds", "epochs", quality), shown)
    minutes = {"auto": given.minutes, "named": given.named_minutes or MINUTES}
    print(save(given.out, "own_table", given.quick, tables=found, minutes=minutes))


if __name__ == "__main__":
    main()
