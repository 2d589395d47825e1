"""Made-up result files."""

from pathlib import Path

import numpy as np

from acenode.paper.results import Result, save


def result(table: str, row: str, seed: int, metrics: dict[str, float], *, epochs: int = 160, **more) -> Result:
    """A run of the published length and setting, unless told otherwise."""
    history = {f"validation_{name}": [0.5 * value, value] for name, value in metrics.items()}
    given = {
        "validation": {},
        "protocol": "comparable",
        "config": {"epochs": epochs, "learning_rate": 0.01},
        "history": history,
        "device": "a machine",
        "best_epoch": epochs,
        "parameters": 1234,
        **more,
    }
    return Result(table, row, seed, metrics, epochs=epochs, data={}, versions={}, seconds=1.0, **given)


def accuracies(table: str, row: str, *values: float, **more) -> list[Result]:
    return [result(table, row, seed, {"accuracy": value}, **more) for seed, value in enumerate(values)]


def figures(seed: int) -> dict:
    """Something of every kind."""
    draw = np.random.default_rng(seed)
    matrices = draw.dirichlet(np.ones(4), size=(7, 4))
    return {
        "error_over_time": {"time": [1.0, 2.0], "mse": [0.1, 0.2 + 0.1 * seed], "values": [5, 5], "unit": "hours"},
        "attention": {"times": list(range(7)), "matrices": matrices.tolist(), "entropy": [1.0] * 7},
        "attention_maps": {"times": [0.0, 1.0], "maps": draw.random((2, 2, 3, 3)).tolist()},
        "embedding": {"x": draw.random(9).tolist(), "y": draw.random(9).tolist(), "label": [0, 1, 2] * 3},
    }


def weights(first: float, last: float) -> dict:
    """Figures of an attention of two dimensions whose first weight goes from one value to another."""
    matrices = [[[x, 1 - x], [x, 1 - x]] for x in (first, last)]
    entropy = [-sum(p * np.log(p) for p in row if p > 0) for (row, _) in matrices]
    return {"attention": {"times": [0.0, 1.0], "matrices": matrices, "entropy": entropy}}


def saved(folder: Path, results: list[Result]) -> Path:
    for each in results:
        save(folder, each)
    return folder


def everything() -> list[Result]:
    """Runs for every kind of line and figure."""
    bad = "<script>alert('row')</script>"
    return [
        *accuracies("mnist", "ODE-Net", 0.995, 0.996, 0.997),
        *accuracies("mnist", "ACE-ODE-Net", 0.994, 0.995, 0.995, figures=figures(0)),
        *accuracies("mnist", bad, 0.5, 0.6, notes=(bad,), device=bad),
        *accuracies("svhn", "ODE-Net", 0.9, epochs=16, config={"epochs": 16, "quick": True}),
        *accuracies("cifar10", "ACE-ODE-Net", 0.86, 0.87),
        *accuracies("cifar10", "ACE-ODE-Net (Large)", 0.88, 0.87),
        *[
            result(
                "ushcn",
                row,
                seed,
                {"mse": 0.4 + 0.01 * seed, "negll": 0.9},
                protocol="one state",
                figures=figures(seed),
            )
            for row in ("GRU-ODE-Bayes", "ACE-GRU-ODE-Bayes")
            for seed in range(2)
        ],
        *accuracies("a table of our own", "a row", 0.1),
    ]
