"""Flower on this machine, as its command line starts it: a SuperLink, with SuperNodes or with its simulation.

Only 127.0.0.1 is used; nothing is reported to anybody, looked up or installed. Whatever happens, every
process that was started, with all that it started, is ended.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

STARTING = 60.0  # seconds until the SuperLink answers
RUNNING = 240.0  # seconds for a run
PATIENCE = 10.0  # seconds for a process to end when it is asked


@contextmanager
def flower(folder: Path, clients: int, *, simulated: bool) -> Iterator[Network]:
    """A SuperLink that simulates its clients, or with a SuperNode for each, until the context ends."""
    link, *others = free_ports(1 if simulated else 1 + clients)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "JAX_PLATFORMS": "cpu",
    }
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    network = Network(folder, environment, clients if simulated else 0)
    superlink = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(link)]
    superlink += ["--disable-runtime-dependency-installation"] + ["--simulation"] * simulated
    with ExitStack() as running:
        running.callback(end_all, environment["FLWR_HOME"])
        running.enter_context(network.started("superlink", superlink))
        network.wait_for(link)
        for node, port in enumerate(others):
            supernode = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link}"]
            supernode += ["--host", "127.0.0.1", "--port", str(port), "--node-config", f"partition-id={node}"]
            running.enter_context(network.started(f"supernode{node}", supernode))
        yield network


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Network:
    def __init__(self, folder: Path, environment: dict[str, str], simulated: int) -> None:
        self.folder = folder
        self.environment = environment
        self.simulated = simulated

    def run(self, app: Path, **config: object) -> str:
        """Run an app to its end; what it printed."""
        command = ["flwr", "run", str(app), "here", "--stream"]
        command += ["--run-config", " ".join(f"{name}={value!r}" for name, value in config.items())]
        if self.simulated:
            command += ["--federation-config", f"num-supernodes={self.simulated}"]
        with self.started("run", command) as process:
            try:
                process.wait(RUNNING)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"the run does not end:\n{self.printed()}") from None
        return self.printed()

    @contextmanager
    def started(self, name: str, command: list[str]) -> Iterator[subprocess.Popen]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            end(process)

    def wait_for(self, port: int) -> None:
        limit = time.monotonic() + STARTING
        while time.monotonic() < limit:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise TimeoutError(f"the SuperLink does not answer:\n{self.printed()}")

    def printed(self) -> str:
        """The ends of all logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in logs)


def end(process: subprocess.Popen) -> None:
    """Ask a process to end, and then do not ask."""
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_all(home: str) -> None:
    """End whatever still runs of what was started here, known by its ``FLWR_HOME``."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("FLWR_HOME") == home:
                process.kill()
