"""Trainings on forced CPU devices, in a process of its own for `test_devices.py`.

    python run_on_devices.py RESULT.json

Writes what the parent checks: numbers of every training, and the collectives of the compiled programs.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from toy_task import Regression, build, leaves, pairs, split

from acenode.ode import Correlation, Solver
from acenode.train import Member, Recipe, Run, fit, program
from acenode.train.checkpoint import load_head

DATA = jax.tree.map(lambda x: x.astype(np.float32), pairs(40))
SPLIT = split(32, 8)
RECIPE = Recipe(epochs=3, batch_size=8, algorithm="joint")
MEMBERS = [Member(k, learning_rate=0.003 * (k + 1), penalty=0.01 * k) for k in range(8)]
COLLECTIVE = re.compile(r"\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(-start)?\(")


def solved(key):
    """With a data-dependent loop: an adaptive solver."""
    return build(key, Solver("dopri5", rtol=1e-3, atol=1e-3), solved=True)


def digest(done) -> list[str]:
    """Every bit of each member: its parameters, its history and its best score."""
    return [
        b"".join([leaf.tobytes() for leaf in leaves(done.model(k))]).hex()
        + b"".join([values[:, k].tobytes() for values in done.history.values()]).hex()
        + done.best_score[k].tobytes().hex()
        for k in range(len(done.members))
    ]


def flat(done) -> list[float]:
    return np.concatenate([leaf.ravel() for leaf in leaves(done.models)]).astype(float).tolist()


def depths(text: str) -> list[int]:
    """Inside how many while loops each collective of a compiled program is."""
    blocks, name = {}, ""
    for line in text.splitlines():
        head = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line)
        if head:
            name = head.group(1)
            blocks[name] = []
            entry = name if line.startswith("ENTRY") else None
            if entry:
                blocks["ENTRY"] = blocks[name]
        elif name:
            blocks[name].append(line)
    found = []

    def visit(name: str, depth: int) -> None:
        for line in blocks[name]:
            if COLLECTIVE.search(line):
                found.append(depth)
            inner = 1 if re.search(r"\bwhile\(", line) else 0
            for called in re.findall(r"(?:body|condition|to_apply|calls)=%?([\w.\-]+)", line):
                if not COLLECTIVE.search(line):
                    visit(called, depth + inner)
            for several in re.findall(r"branch_computations=\{([^}]*)\}", line):
                for called in several.replace("%", "").split(", "):
                    visit(called, depth)

    visit("ENTRY", 0)
    return found


def reading_programs(found: dict[str, dict]) -> None:
    """From now on, write down the loops and collectives of every program that trains an epoch."""
    real = program._train

    def reading(*told):
        layout = told[0]
        shape = "alone" if layout.mesh is None else "x".join(map(str, layout.mesh.shape.values()))
        if shape not in found:
            text = real.lower(*told).compile().compiled.as_text()
            found[shape] = {"collectives": depths(text), "loops": len(re.findall(r"\bwhile\(", text))}
        return real(*told)

    program._train = reading


def refused() -> list[str]:
    import equinox as eqx

    said = []
    for given, builder, recipe in (
        ({"devices": 9}, build, RECIPE),
        ({"devices": []}, build, RECIPE),
        ({"batch_devices": 5}, build, RECIPE),
        ({"batch_devices": 3}, build, RECIPE),
        ({"batch_devices": 2}, lambda key: eqx.tree_at(lambda m: m.ode.initial, build(key), Correlation(2)), RECIPE),
    ):
        try:
            fit(builder, Regression(), DATA, SPLIT, recipe, MEMBERS[:1], **given)
        except ValueError as error:
            said.append(str(error))
    return said


def train(**given):
    return fit(solved, Regression(), DATA, SPLIT, RECIPE, given.pop("members", MEMBERS), **given)


def main(result: str) -> None:
    told = {"devices": len(jax.devices()), "programs": {}}
    reading_programs(told["programs"])
    alone, two, four = (train(devices=n, at_once=2) for n in (1, 2, None))
    told["ensemble"] = {"2": digest(two), "4": digest(four)}
    told["parameters"] = {"1": flat(alone), "4": flat(four)}
    told["batch"] = {"1": flat(train(members=MEMBERS[:2], devices=1))}
    told["batch"]["4"] = flat(train(members=MEMBERS[:2], batch_devices=2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        Run(solved, Regression(), DATA, SPLIT, RECIPE, MEMBERS, checkpoint=path, devices=4, at_once=2).epoch()
        told["written after"] = load_head(path)["epochs"]
        told["resumed"] = digest(train(checkpoint=path, devices=2, at_once=2))
    told["refused"] = refused()
    Path(result).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
