"""How soon `acenode train` answers Ctrl-C, and how soon the second one ends it, at moments all through a training.

    python benchmarks/interrupt.py                  # about five minutes
    python benchmarks/interrupt.py --trials 2

Each trial starts the real command on generated weather, sends SIGINT after a while, waits for the line that says what
happens, and sends the next. A trial counts where there was a line: before, the command was still reading.
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from own_table import weather
from record import arguments, save, show

MODELS = ("auto", "gru-ode-bayes")
ANSWER = "Stopping at the end of the epoch"


def interrupted(data: Path, out: Path, model: str, after: float) -> dict:
    """One training, interrupted so many seconds after its start."""
    command = [sys.executable, "-m", "acenode", "train", data, "--id", "id", "--time", "hour", "--out", out]
    command += ["--model", model, "--no-report"]
    with subprocess.Popen([str(each) for each in command], stderr=subprocess.PIPE, text=True) as process:
        try:
            time.sleep(after)
            began = time.perf_counter()
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            while (line := process.stderr.readline()) and not line.startswith(ANSWER):
                pass
            answered = time.perf_counter() - began
            again = time.perf_counter()
            process.send_signal(signal.SIGINT)
            process.wait(60)
            ended = time.perf_counter() - again
        finally:
            process.kill()
    kept = sorted(place.name for place in out.parent.glob(f".{out.name}-training*"))
    return {
        "model": model,
        "after_s": round(after, 1),
        "answered_s": round(answered, 3),
        "with_a_line": bool(line),
        "ended_s": round(ended, 3),
        "kept": kept,
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "interrupt-cpu")
    parser.add_argument("--trials", type=int, default=6, help="of each of a search and a named model")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "weather.csv"
        weather(60 if given.quick else 219).write_csv(data)
        for model in MODELS:
            for k, after in enumerate(np.linspace(8.0, 40.0, given.trials)):
                rows.append(interrupted(data, Path(folder) / f"{model}-{k}", model, float(after)))
                print(rows[-1], flush=True)
    columns = ("model", "after_s", "answered_s", "ended_s", "with_a_line")
    show(columns, [[row[name] for name in columns] for row in rows])
    print(save(given.out, "interrupt", given.quick, limit_s=2.0, trials=rows))


if __name__ == "__main__":
    main()
