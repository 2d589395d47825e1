"""`acenode serve` under load: updates a second, how long they wait, memory, and what a SIGKILL costs.

    python benchmarks/serve.py                      # all of it, about six minutes
    python benchmarks/serve.py --updates 5000 --kills 1

A model is trained on generated series (or `--model` names a saved one), the real command serves it, and a client on
the same machine sends single observations at a fixed rate, whether the answers come or not: an answer's time counts
from when its request was due. After a SIGKILL amid updates the service is started again, and every update that it had
acknowledged must be there.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import record


@dataclass
class Client:
    """Sends updates of many series over a few connections, and keeps what was acknowledged."""

    port: int
    names: list[str]
    step: float
    times: dict[str, float] = field(default_factory=dict)  # the last one sent
    acknowledged: dict[str, float] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    done: int = 0

    def request(self, id: str, moment: float, random: random.Random) -> bytes:
        values = {name: round(random.gauss(0, 1), 4) for name in self.names if random.random() < 0.85}
        body = json.dumps({"id": id, "time": moment, "values": values}).encode()
        head = (
            f"POST /update HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def send(self, count: int, rate: float, ids: int, connections: int = 48, seed: int = 0) -> float:
        """Send so many updates at so many a second; gives the seconds it took until the last answer."""
        draw = random.Random(seed)
        free: asyncio.Queue = asyncio.Queue()
        for _ in range(connections):
            free.put_nowait(await asyncio.open_connection("127.0.0.1", self.port))
        running: set[asyncio.Task] = set()
        begun = time.perf_counter()
        for k in range(count):
            due = begun + k / rate
            ahead = due - time.perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            id = f"s{k % ids}"
            self.times[id] = self.times.get(id, 0.0) + self.step * draw.uniform(0.5, 1.5)
            message = self.request(id, self.times[id], draw)
            task = asyncio.create_task(self._one(free, message, id, self.times[id], due))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running, return_exceptions=True)
        took = time.perf_counter() - begun
        while not free.empty():
            free.get_nowait()[1].close()
        return took

    async def _one(self, free: asyncio.Queue, message: bytes, id: str, moment: float, due: float) -> None:
        reader, writer = await free.get()
        try:
            writer.write(message)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            status = head.split(b" ", 2)[1].decode()
            if status == "200":
                self.acknowledged[id] = max(moment, self.acknowledged.get(id, 0.0))
                self.waits.append(time.perf_counter() - due)
                self.done += 1
            else:
                self._fault(status)
        except (OSError, asyncio.IncompleteReadError):
            self._fault("connection")
        finally:
            free.put_nowait((reader, writer))

    def _fault(self, kind: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1

    async def ask(self, id: str, moment: float) -> int:
        """The status of one update."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self.request(id, moment, random.Random(0)))
        status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
        writer.close()
        return status


class Server:
    """The real command, in a process of its own."""

    def __init__(self, model: Path, state: Path):
        command = [sys.executable, "-m", "acenode", "serve", str(model), "--port", "0", "--state", str(state)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise SystemExit(f"the service did not start: {line!r}")
        self.port = int(line.split("http://", 1)[1].split(";")[0].rsplit(":", 1)[1])

    async def ready(self) -> None:
        for _ in range(600):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                if b" 200 " in await reader.readline():
                    writer.close()
                    return
            except OSError:
                pass
            await asyncio.sleep(0.1)
        raise SystemExit("the service did not get ready.")

    def memory(self) -> float:
        """Resident memory in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def trained(folder: Path, hidden: int) -> Path:
    """A forecaster of four variables, trained for two epochs: weights do not matter to the clock."""
    import pandas as pd

    from acenode.estimators import Forecaster

    draw = np.random.default_rng(0)
    parts = []
    for k in range(60):
        hours = np.cumsum(draw.uniform(0.5, 1.5, 30))
        waves = {name: np.sin(hours / 3 + k + j) for j, name in enumerate(("a", "b", "c", "d"))}
        parts.append(pd.DataFrame({"id": f"t{k}", "time": hours, **waves}))
    model = Forecaster(model="gru-ode-bayes", hidden=hidden, epochs=2)
    return model.fit(pd.concat(parts, ignore_index=True)).save(folder / "model")


async def load_test(server: Server, names: list[str], step: float, args) -> dict:
    """The rate, the waits, and the memory after the first tenth and at the end."""
    await server.ready()
    client = Client(server.port, names, step)
    await client.send(min(2000, args.updates), args.rate, args.ids)
    client.waits.clear()
    first, rest = args.updates // 10, args.updates - args.updates // 10
    took = await client.send(first, args.rate, args.ids, seed=1)
    before, busy = server.memory(), server.processor_seconds()
    took += await client.send(rest, args.rate, args.ids, seed=2)
    waits = np.asarray(client.waits) * 1000
    return {
        "updates": int(waits.size),
        "faults": client.faults,
        "updates_per_second": round(waits.size / took, 1),
        "p50_ms": round(float(np.quantile(waits, 0.5)), 2),
        "p99_ms": round(float(np.quantile(waits, 0.99)), 2),
        "max_ms": round(float(waits.max()), 2),
        "processor_ms_per_update": round((server.processor_seconds() - busy) / max(rest, 1) * 1000, 3),
        "memory_after_a_tenth_mib": round(before, 1),
        "memory_at_the_end_mib": round(server.memory(), 1),
    }


async def kill_test(model: Path, state: Path, names: list[str], step: float, args) -> dict:
    """SIGKILLs amid updates; how many acknowledged updates are lost."""
    draw = random.Random(0)
    acknowledged = lost = 0
    for k in range(args.kills):
        place = state.with_name(f"killed-{k}.sqlite")
        server = Server(model, place)
        await server.ready()
        client = Client(server.port, names, step)
        sending = asyncio.create_task(client.send(10_000, args.rate, 100, seed=k))
        await asyncio.sleep(draw.uniform(0.5, 3.0))
        server.kill()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        acknowledged += client.done
        server = Server(model, place)
        await server.ready()
        again = Client(server.port, names, step)
        for id, moment in client.acknowledged.items():
            lost += await again.ask(id, moment) != 409  # a time that is there already
        server.stop()
    return {"kills": args.kills, "acknowledged": acknowledged, "lost_series": lost}


async def measure(args) -> dict:
    from acenode.estimators.saved import read_head

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = args.model or trained(place, args.hidden)
        head = read_head(model)
        names = [str(name) for name in head["columns"]["values"]]
        step = head["settings"]["unit"] * 0.35  # about a row of the training table
        server = Server(model, place / "state.sqlite")
        try:
            results = {"rate": args.rate, "ids": args.ids, **await load_test(server, names, step, args)}
        finally:
            server.stop()
        results |= await kill_test(model, place / "state.sqlite", names, step, args)
    return {"model": head["settings"]["model"], "hidden": head["settings"]["hidden"], **results}


def main() -> None:
    parser = record.arguments("the service under load", "serve-cpu")
    parser.add_argument("--model", type=Path, help="a saved model that can be followed; a small one if not given")
    parser.add_argument("--hidden", type=int, default=32, help="hidden size of the small one (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=500.0, help="updates a second (default: %(default)s)")
    parser.add_argument("--ids", type=int, default=1000, help="followed series (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=10, help="SIGKILLs amid updates (default: %(default)s)")
    args = parser.parse_args()
    if args.quick:
        args.updates, args.kills = 2000, 1
    results = asyncio.run(measure(args))
    record.show(["", "value"], list(results.items()))
    print(record.save(args.out, "serve", args.quick, results=results))


if __name__ == "__main__":
    main()
