"""How to train the image classifiers: rates, smoothing, crops, cutouts and decay by validation accuracy.

    python benchmarks/image_recipe.py --data-dir FOLDER --table cifar10 --epochs 10 --out image-recipe-h200

Otherwise as in the tables (`acenode.paper.images.recipe`). Rates and seeds are members of one ensemble; accuracies are
means over seeds. Three epochs of one seed were seen to choose rates that are too high for a whole training. Test images
are not looked at.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

from record import arguments, save, show

from acenode.ode import Solver
from acenode.paper import images
from acenode.tasks import ImageClassification
from acenode.train import Member, Run


def validated(
    table: str,
    name: str,
    solver: Solver,
    task: ImageClassification,
    epochs: int,
    decay: float,
    rates,
    seeds: int,
    data_dir,
) -> dict:
    began = time.perf_counter()
    setting, prepared = images.SETTINGS[table], images.prepared(table, data_dir, range(seeds))
    how = replace(images.recipe(table, epochs), weight_decay=decay, initial_decay=decay)
    members = [Member(seed, seed, rate, setting.penalty) for rate in rates for seed in range(seeds)]
    run = Run(images.models(table, solver)[name].build, task, prepared.data, prepared.splits, how, members)
    while not run.finished:
        run.epoch()
    scores = run.result().best_score.reshape(len(rates), seeds).mean(axis=1)
    return {
        "row": name,
        "smoothing": task.smoothing,
        "padding": task.padding,
        "cutout": task.cutout,
        "weight_decay": decay,
        "accuracy": {str(rate): round(float(score), 4) for rate, score in zip(rates, scores, strict=True)},
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "image-recipe")
    parser.add_argument("--data-dir", help="folder with the images, if not the usual one")
    parser.add_argument("--table", default="cifar10", choices=tuple(images.SETTINGS), help="(default: %(default)s)")
    parser.add_argument("--rows", nargs="+", default=["ODE-Net", "ACE-ODE-Net"], help="(default: %(default)s)")
    parser.add_argument("--smoothing", nargs="+", type=float, default=[0.0, 0.1], help="(default: %(default)s)")
    parser.add_argument("--padding", nargs="+", type=int, default=[4], help="around crops (default: %(default)s)")
    parser.add_argument("--cutout", nargs="+", type=int, default=[0], help="side of squares (default: %(default)s)")
    parser.add_argument("--two-steps", action="store_true", help="two steps of RK4, as in rows of longer training")
    decay = "weight decay, not on theta_g (default: %(default)s)"
    parser.add_argument("--decay", nargs="+", type=float, default=[images.DECAY], help=decay)
    parser.add_argument("--rates", nargs="+", type=float, default=list(images.RATES), help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="to average over (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="(default: %(default)s)")
    given = parser.parse_args()
    epochs = 1 if given.quick else given.epochs

    solver = images.TWO_STEPS if given.two_steps else images.USUAL

    def one(what: tuple[str, float, int, int, float]) -> dict:
        name, smoothing, padding, cutout, decay = what
        pictures = {"smoothing": smoothing, "padding": padding, "cutout": cutout}
        how = (given.rates, given.seeds, given.data_dir)
        row = validated(given.table, name, solver, images.task(given.table, **pictures), epochs, decay, *how)
        print(row, flush=True)
        return row

    with ThreadPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(one, product(given.rows, given.smoothing, given.padding, given.cutout, given.decay)))
    told = ("row", "smoothing", "padding", "cutout", "weight_decay")
    shown = [(*(r[name] for name in told), *(f"{a:.4f}" for a in r["accuracy"].values())) for r in rows]
    show((*told, *map(str, given.rates)), shown)
    of_all = {"table": given.table, "epochs": epochs, "seeds": given.seeds, "two_steps": given.two_steps}
    print(save(given.out, "image-recipe", given.quick, **of_all, rows=rows))


if __name__ == "__main__":
    main()
