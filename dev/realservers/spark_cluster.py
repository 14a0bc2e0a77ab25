"""dev/spark-cluster: a standalone Spark master and two workers on loopback, from the PySpark package.

The rule: the cluster is up when the master itself reports that it is alive and has both workers.  `status` prints the
address to set as PERAGO_SPARK_MASTER.  Everything that the cluster writes is in one folder, which `down` removes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

from perago.spark.appcds import archive_file, quick_options, use_options
from realservers.process import Process
from realservers.state import free_ports, set_mark
from realservers.tools import DevError, locked

WORKERS = 2
CORES = 4
MEMORY = "8g"
"""Cores and memory of each worker, whatever the machine has: four drivers of two cores each fit."""
_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The ports of one cluster."""

    port: int
    web_port: int

    @property
    def address(self) -> str:
        """The URL that a driver connects to."""
        return f"spark://127.0.0.1:{self.port}"


def folder() -> Path:
    """Return the folder in which this checkout's cluster keeps everything."""
    return Path(tempfile.gettempdir()).resolve() / f"perago-spark-{os.getuid()}-{set_mark()}"


def up() -> int:
    """Start the processes that are not running, and wait until the master has its workers."""
    with locked(folder().name):
        cluster = _load() or _create()
        if _alive_workers(cluster) < WORKERS:
            for name, command in _commands(cluster).items():
                if (process := Process(name, folder())).pid() is None:
                    process.start(command)
            _wait(cluster)
    return status()


def down() -> int:
    """Stop the cluster and remove its folder."""
    with locked(folder().name):
        for name in reversed(_names()):
            Process(name, folder()).stop()
        shutil.rmtree(folder(), ignore_errors=True)
    _say("no Spark cluster, no state")
    return 0


def status() -> int:
    """Print the master's address. Returns 0 if the master has all its workers."""
    cluster = _load()
    alive = _alive_workers(cluster) if cluster is not None else 0
    if cluster is None or alive < WORKERS:
        _say(f"the Spark cluster is down ({alive} of {WORKERS} workers): run `dev/spark-cluster up`")
        return 1
    print(cluster.address)
    return 0


def _names() -> list[str]:
    return ["master", *(f"worker-{number}" for number in range(1, WORKERS + 1))]


def _commands(cluster: Cluster) -> dict[str, list[str]]:
    home = _spark_home()
    # The folder is on every command line, to recognize a pid as ours.
    options = [f"-Dperago.folder={folder()}", *quick_options()]
    if (archive := archive_file(os.environ)) is not None:
        options += use_options(archive)
    environment = [
        f"SPARK_DAEMON_JAVA_OPTS={' '.join(options)}",
        "SPARK_LOCAL_IP=127.0.0.1",
        f"SPARK_HOME={home}",
    ]
    if java := os.environ.get("JAVA_HOME"):
        environment.append(f"JAVA_HOME={java}")
    start = ["/usr/bin/env", *environment, str(home / "bin" / "spark-class")]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(cluster.port)]
    found = {"master": [*start, *master, "--webui-port", str(cluster.web_port)]}
    for name in _names()[1:]:
        work = folder() / name / "work"
        sizes = ["--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(work), "--webui-port", "0"]
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", *sizes, cluster.address]
        found[name] = [*start, *worker]
    return found


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise DevError("PySpark is missing: run `make setup`")
    return Path(found.origin).parent


def _alive_workers(cluster: Cluster) -> int:
    # No proxy: the master is on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{cluster.web_port}/json/", timeout=5) as answer:
            said = json.load(answer)
        return int(said["aliveworkers"]) if said["status"] == "ALIVE" else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _wait(cluster: Cluster) -> None:
    limit = float(os.environ.get("PERAGO_DEV_START_TIMEOUT", "300"))
    _say("starting a Spark master and its workers")
    began = time.monotonic()
    while _alive_workers(cluster) < WORKERS:
        time.sleep(0.2)
        waited = time.monotonic() - began
        dead = [name for name in _names() if waited > 5 and Process(name, folder()).pid() is None]
        if dead or waited > limit:
            name = dead[0] if dead else "master"
            raise DevError(
                f"{name} did not come up; the end of its log:\n{Process(name, folder()).log_tail()}"
            )


def _load() -> Cluster | None:
    try:
        return Cluster(**json.loads((folder() / _FILE).read_text()))
    except FileNotFoundError:
        return None


def _create() -> Cluster:
    folder().mkdir(mode=0o700)
    cluster = Cluster(*free_ports(2))
    (folder() / _FILE).write_text(json.dumps(asdict(cluster)))
    return cluster


def _say(text: str) -> None:
    print(f"dev/spark-cluster: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run one subcommand. An expected failure prints one message and returns exit code 1."""
    parser = argparse.ArgumentParser(prog="dev/spark-cluster", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    try:
        return {"up": up, "down": down, "status": status}[parser.parse_args().command]()
    except DevError as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
