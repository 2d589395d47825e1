"""What a run shows while it runs."""

import math
import sys
from collections.abc import Sequence
from html import escape
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..tasks.task import Task
from .recipe import Member, Recipe


class StopTraining(Exception):
    """Raised by `Progress.epoch`: `fit` ends after this epoch with the best parameters so far."""


@runtime_checkable
class Progress(Protocol):
    """Is told when a run starts, after every epoch, and when it stops, however it stops."""

    def start(self, recipe: Recipe, members: Sequence[Member], task: Task, first_epoch: int) -> None: ...

    def epoch(self, epoch: int, record: dict[str, np.ndarray], samples: int) -> None: ...

    def stop(self) -> None: ...


class Quiet:
    """Shows nothing."""

    def start(self, recipe, members, task, first_epoch) -> None: ...

    def epoch(self, epoch, record, samples) -> None: ...

    def stop(self) -> None: ...


class Lines(Quiet):
    """Shows what is said besides, a line for each, such as how far a candidate came."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


SECONDS = 30.0  # between two lines of a log


class Display:
    """What `Bar`s are drawn on, beside the output proper; as a context, it shows those of several runs at once.

    Where nobody watches, such as in a log file, it takes lines instead.
    """

    def __init__(self):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.watched = console.is_terminal or console.is_jupyter
        if console.is_jupyter:
            self.rows: Any = _NotebookRows()
            return
        self.rows = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}\n{task.fields[numbers]}"),  # two lines, to fit a narrow terminal
            BarColumn(bar_width=8),
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not self.watched,
        )

    def say(self, line: str) -> None:
        """A line above the bars."""
        if isinstance(self.rows, _NotebookRows):
            self.rows.say(line)
        elif self.watched:
            self.rows.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> "Display":
        self.rows.start()
        return self

    def __exit__(self, *error) -> None:
        self.rows.stop()


class _NotebookRows:
    """Bars below the cell of a notebook that runs: one piece of HTML, replaced as they advance."""

    def __init__(self):
        self._tasks: list[dict[str, Any]] = []
        self._lines: list[str] = []
        self._shown: Any = None

    def add_task(self, description: str, **fields: Any) -> int:
        self._tasks.append({"description": description, **fields})
        self._draw()
        return len(self._tasks) - 1

    def update(self, task: int, **fields: Any) -> None:
        self._tasks[task] |= fields
        self._draw()

    def say(self, line: str) -> None:
        self._lines.append(line)
        self._draw()

    def start(self) -> None:
        if self._shown is None:
            from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

            self._shown = display(HTML(self._html()), display_id=True)

    def stop(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._shown is not None:
            from IPython.display import HTML  # pyright: ignore[reportMissingImports]

            self._shown.update(HTML(self._html()))

    def _html(self) -> str:
        said = "".join(f"<div>{escape(line)}</div>" for line in self._lines)
        return said + "".join(
            f'<div>{escape(t["description"])} <progress value="{t["completed"]}" max="{t["total"]}"></progress> '
            f"{t['completed']}/{t['total']} {escape(t['numbers'])}</div>"
            for t in self._tasks
        )


class Bar:
    """A progress bar: epoch, losses, validation score, calls of the vector field, samples a second.

    `display` is one that others use too; by default the bar has one to itself.
    """

    def __init__(self, name: str = "training", display: Display | None = None):
        self.name = name
        self._display = display or Display()
        self._alone = display is None

    def start(self, recipe, members, task, first_epoch) -> None:
        import time

        self._clock, self._monitor = time.perf_counter, task.monitor
        self._epochs = recipe.epochs
        self._label = self.name if len(members) == 1 else f"{self.name} ({len(members)} runs at once)"
        begun = {"total": recipe.epochs, "completed": first_epoch, "numbers": "compiling"}
        self._row = self._display.rows.add_task(self._label, **begun)
        if self._alone:
            self._display.rows.start()
        self._last, self._told = self._clock(), -math.inf

    def epoch(self, epoch, record, samples) -> None:
        now = self._clock()
        rate, self._last = samples / max(now - self._last, 1e-9), now
        # Members that have stopped early tell nothing.
        told = {name: value[~np.isnan(value)] for name, value in record.items()}
        mean = {name: float(np.mean(value)) if value.size else np.nan for name, value in told.items()}
        attention = f" L_a {mean['attention_loss']:.3f}" if np.any(told["attention_loss"]) else ""
        numbers = (
            f"L_h {mean['loss']:.3f}{attention} val {self._monitor} "
            f"{mean['validation_' + self._monitor]:.4f} NFE {mean['nfe']:.0f} {rate:,.0f} samples/s"
        )
        self._display.rows.update(self._row, completed=epoch + 1, numbers=numbers)
        if not self._display.watched and (epoch + 1 == self._epochs or now - self._told > SECONDS):
            print(f"{self._label}: epoch {epoch + 1} of {self._epochs}, {numbers}", file=sys.stderr, flush=True)
            self._told = now

    def stop(self) -> None:
        if self._alone:
            self._display.rows.stop()


class BudgetBar:
    """A bar of the seconds spent of a `Budget`, as a search among models has one; what is said stands above it."""

    def __init__(self, budget: Any, name: str = "searching"):
        self._budget, self._name, self._display = budget, name, Display()

    def start(self, recipe, members, task, first_epoch) -> None:
        whole = round(self._budget.seconds)
        self._row = self._display.rows.add_task(self._name, total=whole, completed=0, numbers="seconds")
        self._display.rows.start()

    def epoch(self, epoch, record, samples) -> None:
        self._display.rows.update(self._row, completed=min(round(self._budget.spent), round(self._budget.seconds)))

    def say(self, line: str) -> None:
        self._display.say(line)

    def stop(self) -> None:
        self._display.rows.stop()
