"""One of several processes that train an ensemble together, for `test_hosts.py`.

python run_on_hosts.py CHECKPOINT RESULT EPOCHS
"""

import sys

import jax
import numpy as np

from acenode.train import Member, Recipe, connect_hosts, fit


def main(checkpoint: str, result: str, epochs: str) -> None:
    assert connect_hosts(heartbeat=10) == jax.process_count() == 2
    assert connect_hosts() == 2  # again changes nothing
    from toy_task import Regression, build, leaves, pairs, split  # which computes something

    data = jax.tree.map(lambda x: x.astype(np.float32), pairs(6000))
    recipe = Recipe(epochs=int(epochs), batch_size=2, algorithm="joint")
    members = [Member(k, learning_rate=0.001 * (k + 1)) for k in range(3)]
    done = fit(build, Regression(), data, split(5992, 8), recipe, members, checkpoint=checkpoint)
    assert len(done.members) == len(done.best_score) == 3
    if jax.process_index() == 0:
        arrays = {f"parameter {i}": leaf for i, leaf in enumerate(leaves(done.models))}
        np.savez(result, best_score=done.best_score, **arrays, **done.history)


if __name__ == "__main__":
    main(*sys.argv[1:])
