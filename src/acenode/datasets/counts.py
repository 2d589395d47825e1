"""Counts in words, for the reports of what was wrong with a file."""

import itertools


def listed(counts: dict[str, int], most: int = 12) -> str:
    """Names with their counts, greatest first."""
    if not counts:
        return "none"
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in itertools.islice(ordered, most))
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"
