"""The reliability campaign: eight parts that try to break acenode, each with counts of what was tried and lost.

    make campaign                                       # all parts, about an hour
    python -m benchmarks.campaign --part fuzz --scale 0.05

A part is a module with `run(scale) -> dict`. Its result is `benchmarks/results/reliability-<part>.json`.
"""

PARTS = ("solver", "tamper", "ensemble", "fuzz", "requests", "faults", "service", "kills")
