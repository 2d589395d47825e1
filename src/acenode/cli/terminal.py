"""How commands speak with the person at the terminal: faults, warnings, and the answer to Ctrl-C."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

import typer

Result = TypeVar("Result")


def fail(sentence: str) -> NoReturn:
    """End the command with one sentence and exit code 1."""
    typer.echo(f"acenode: {sentence}", err=True)
    raise typer.Exit(1)


def checked(call: Callable[[], Result]) -> Result:
    """What `call` gives; a fault of the user's ends the command with a sentence, a warning is a line."""
    from jax.errors import JaxRuntimeError

    from ..train import CheckpointMismatch

    def show(message, category, *_) -> None:
        if issubclass(category, UserWarning):
            typer.echo(f"acenode: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        try:
            return call()
        except CheckpointMismatch:
            raise
        except OSError as error:
            fail(f"{error.filename or 'a file'}: {error.strerror or error}. Choose another place, or free some space.")
        except ValueError as error:
            fail(str(error))
        except JaxRuntimeError as error:
            fail(device_failed(error))


def device_failed(error: Exception) -> str:
    """That a device was lost or full, and what to do."""
    lines = str(error).splitlines() or ["no reason given"]
    return f"the device failed ({lines[0]}). Whole epochs are kept: the same command resumes from the last one."


@contextmanager
def answered(sentence: str) -> Iterator[threading.Event]:
    """Ctrl-C is answered with `sentence` at once, sets the event and is raised as KeyboardInterrupt; a second one ends
    the process.

    Python hears a signal only between two of its own instructions: what computes for long has to be in another thread.
    """

    stopped = threading.Event()

    def answer(*_) -> None:
        from rich.console import Console

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        Console(stderr=True).show_cursor()  # the bars hide it, and the second Ctrl-C leaves them no time to show it
        typer.echo(sentence, err=True)
        stopped.set()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as it is for what a script runs in the background
        signal.signal(signal.SIGINT, answer)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def interruptible(train: Callable[[Any], Result], shown: Any, sentence: str) -> tuple[Result, bool]:
    """What `train(progress)` gives, and whether Ctrl-C ended it early, at the end of an epoch; see `answered`."""
    with answered(sentence) as stopped, ThreadPoolExecutor(1) as pool:
        future = pool.submit(train, _Stoppable(shown, stopped))
        with suppress(KeyboardInterrupt):
            future.exception()
    return future.result(), stopped.is_set()


class _Stoppable:
    """A `Progress` that ends the training after the epoch in which it was stopped."""

    def __init__(self, shown: Any, stopped: threading.Event):
        self._shown, self._stopped = shown, stopped
        self.start, self.stop = shown.start, shown.stop
        if hasattr(shown, "say"):
            self.say = shown.say

    def epoch(self, epoch, record, samples) -> None:
        from ..train import StopTraining

        self._shown.epoch(epoch, record, samples)
        if self._stopped.is_set():
            raise StopTraining
