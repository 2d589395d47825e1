"""How to train the image classifiers: learning rates and label smoothing by validation accuracy, at a short budget.

    python benchmarks/image_recipe.py --data-dir FOLDER --table cifar10 --epochs 10 --out image-recipe-h200

Otherwise as in the tables (`acenode.paper.images.recipe`). The rates are members of one ensemble. Test images are not
looked at.
"""

import time

from record import arguments, save, show

from acenode.paper import images
from acenode.tasks import ImageClassification
from acenode.train import Member, Run


def validated(table: str, name: str, epochs: int, smoothing: float, data_dir) -> dict:
    began = time.perf_counter()
    setting, prepared = images.SETTINGS[table], images.prepared(table, data_dir, [0])
    task = ImageClassification(flip=table == "cifar10", smoothing=smoothing)
    how = images.recipe(table, epochs)
    members = [Member(0, 0, rate, setting.penalty) for rate in images.RATES]
    run = Run(images.models(table)[name].build, task, prepared.data, prepared.splits, how, members)
    while not run.finished:
        run.epoch()
    return {
        "row": name,
        "smoothing": smoothing,
        "accuracy": dict(zip(map(str, images.RATES), [float(score) for score in run.result().best_score], strict=True)),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "image-recipe")
    parser.add_argument("--data-dir", help="folder with the images, if not the usual one")
    parser.add_argument("--table", default="cifar10", choices=tuple(images.SETTINGS), help="(default: %(default)s)")
    parser.add_argument("--rows", nargs="+", default=["ODE-Net", "ACE-ODE-Net"], help="(default: %(default)s)")
    parser.add_argument("--smoothing", nargs="+", type=float, default=[0.0, 0.1], help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="(default: %(default)s)")
    given = parser.parse_args()
    epochs, rows = 1 if given.quick else given.epochs, []
    for name in given.rows:
        for smoothing in given.smoothing:
            rows.append(validated(given.table, name, epochs, smoothing, given.data_dir))
            print(rows[-1], flush=True)
    shown = [(r["row"], r["smoothing"], *(f"{a:.4f}" for a in r["accuracy"].values())) for r in rows]
    show(("row", "smoothing", *map(str, images.RATES)), shown)
    print(save(given.out, "image-recipe", given.quick, table=given.table, epochs=epochs, rows=rows))


if __name__ == "__main__":
    main()
