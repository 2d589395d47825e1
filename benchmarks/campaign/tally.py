"""Counts of what was tried and of what was lost."""

from collections import Counter, defaultdict
from typing import Any

_EXAMPLES = 5  # of a kind of loss


class Tally:
    """Counts by kind. A loss has a sentence; a few of each kind are kept as examples."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.losses: Counter[str] = Counter()
        self.examples: list[str] = []

    def add(self, kind: str, loss: str | None = None, outcome: str | None = None) -> None:
        """One more was tried: a loss with its sentence, or not; `outcome` says how it ended otherwise."""
        self.tried[kind] += 1
        if outcome is not None:
            self.outcomes[kind][outcome] += 1
        if loss is not None:
            self.losses[kind] += 1
            if self.losses[kind] <= _EXAMPLES:
                self.examples.append(f"{kind}: {loss}")

    def result(self, **more: Any) -> dict[str, Any]:
        """What a part gives."""
        return {
            "tried": self.tried.total(),
            "losses": self.losses.total(),
            "kinds": {
                kind: {"tried": count, "losses": self.losses[kind], **dict(self.outcomes[kind])}
                for kind, count in self.tried.items()
            },
            "examples": self.examples,
            **more,
        }
