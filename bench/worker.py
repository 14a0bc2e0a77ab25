"""A whole worker on real servers: attempts per second with 2 and 8 slots, next to perago 0.6.1 and bare server calls.

Every attempt changes the only file in its own workspace, so publishers never meet and no cache helps.  All workflows of
a turn are started first, and then the contender.  The time is measured by Conductor's own clock from the first poll to
the last result, so that it does not include starting a worker.  The contenders take turns, and the best turn of each
counts.  Every turn has a new lakeFS, because with its local store each commit costs more the more branches there have
been before.

    idle worker           from the moment a task is scheduled to the first line of its body, by one clock
    CPU of all servers    CPU time of lakeFS, Conductor and the servers that they store their state in, while a turn's
                          attempts run; they share the cores with the workers, so this bounds every contender

`scripts/bare_attempts.py` lists the calls that the bare loop makes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakefs_sdk

from bench import Row
from bench.harness import Context, create_repository, in_turns, lakefs_client, servers_cpu_seconds
from bench.kinds import BOTH
from bench.peers import old_python

NAME = "A worker on real servers"
SERVERS = True
KINDS = BOTH
SLOTS = (2, 8)
SCRIPTS = Path(__file__).parent / "scripts"
SERVERS_COMMAND = Path(__file__).parents[1] / "dev" / "servers"
TASK_MODULE = "tiny_task"
OURS = [sys.executable, "-m", "perago", "start", TASK_MODULE, "--register", "-j"]
_LONGEST_WAIT = 180.0


def run() -> list[Row]:
    """Measure all figures."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        return _figures(_site(Context(Path(folder))))


@dataclass(slots=True)
class Site:
    """One repository, one Conductor, and the turns that contenders take on them."""

    context: Context
    server: lakefs_sdk.ApiClient
    repository: str = "bench"
    slots: int = SLOTS[0]
    steps: dict[str, float] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    servers_cpu: dict[str, float] = field(default_factory=dict)
    """CPU seconds that the servers used per attempt, by contender, in the contender's best turn."""

    @property
    def amount(self) -> int:
        """The number of attempts in a turn: fifty per slot, since some slots are still starting while others work."""
        return 10 if self.context.quick else 50 * self.slots

    def conductor(self, method: str, path: str, body: object = None) -> Any:
        """Make one call to Conductor, and return its answer as JSON or text."""
        request = urllib.request.Request(
            self.context.needed("CONDUCTOR_SERVER_URL") + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if text[:1] in ("{", "[") else text

    def define(self, contender: str) -> str:
        """Return a new task name, after registering its TaskDef and its one-step workflow."""
        name = f"bench_{contender}_{uuid.uuid4().hex[:8]}"
        definition = {
            "name": name,
            "ownerEmail": "bench@example.com",
            "retryCount": 0,
            "timeoutSeconds": 0,
            "responseTimeoutSeconds": 60,
        }
        self.conductor("POST", "/metadata/taskdefs", [definition])
        step = {
            "name": name,
            "taskReferenceName": "step",
            "type": "SIMPLE",
            "inputParameters": {
                "workspace": "${workflow.input.workspace}",
                "params": "${workflow.input.params}",
            },
        }
        flow = {"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "bench@example.com"}
        self.conductor("PUT", "/metadata/workflow", [{**flow, "tasks": [step]}])
        return name

    def start(self, name: str, number: int) -> str:
        """Start one workflow on its own branch, with a unique input."""
        branch = f"{name}-{number}"
        wanted = lakefs_sdk.BranchCreation(name=branch, source="main")
        lakefs_sdk.BranchesApi(self.server).create_branch(self.repository, wanted)
        ref = self._put(branch, f"{branch} before")
        workspace = {"repository": self.repository, "branch": branch, "refType": "commit", "ref": ref}
        given = {"workspace": workspace, "params": {"number": number}}
        return str(self.conductor("POST", f"/workflow/{name}", given))

    def completed(self, flow: str) -> dict[str, Any]:
        """Wait until a workflow is completed, and return its only task."""
        until = time.monotonic() + _LONGEST_WAIT
        while time.monotonic() < until:
            found = self.conductor("GET", f"/workflow/{flow}?includeTasks=true")
            if found["status"] == "COMPLETED":
                return dict(found["tasks"][0])
            if found["status"] != "RUNNING":
                raise SystemExit(f"a workflow ended {found['status']}: {found.get('reasonForIncompletion')}")
            time.sleep(0.05)
        raise SystemExit(f"a workflow is not done after {_LONGEST_WAIT:.0f} s")

    def wait_for(self, name: str, flows: list[str]) -> list[dict[str, Any]]:
        """Wait until all workflows are completed, and return their tasks. Makes few calls while attempts run."""
        until = time.monotonic() + _LONGEST_WAIT
        while self.conductor("GET", f"/tasks/queue/sizes?taskType={name}").get(name, 0):
            if time.monotonic() > until:
                raise SystemExit(f"{name}: the queue is not empty after {_LONGEST_WAIT:.0f} s")
            time.sleep(0.5)
        return [self.completed(flow) for flow in flows]

    def turn(self, contender: str, worker: Callable[[str], Any]) -> float:
        """Return the seconds from the first poll to the last result of a turn.

        `worker` returns a context in which a worker runs.
        """
        self._renew()
        name = self.define(contender)
        with ThreadPoolExecutor(8) as pool:
            flows = list(pool.map(lambda number: self.start(name, number), range(self.amount)))
        with worker(name) as after:
            before = servers_cpu_seconds(self.context)
            tasks = self.wait_for(name, flows)
            spent = (servers_cpu_seconds(self.context) - before) / len(tasks)
            after()
        self.servers_cpu[contender] = min(spent, self.servers_cpu.get(contender, spent))
        took = (max(one["endTime"] for one in tasks) - min(one["startTime"] for one in tasks)) / 1000
        self.context.say(f"{contender}: {len(tasks) / took:.1f} attempts a second")
        return took

    @contextmanager
    def ours(self, name: str) -> Iterator[Callable[[], None]]:
        """Run a worker from this checkout."""
        with self._process([*OURS, str(self.slots)], name):
            yield lambda: None

    @contextmanager
    def watched(self, name: str) -> Iterator[Callable[[], None]]:
        """Run the same worker. Afterwards, read its step times, and measure how fast it starts a task while idle."""
        port = _free_port()
        with self._process([*OURS, str(self.slots), "--http", str(port)], name):
            yield lambda: self._look_at(name, port)

    @contextmanager
    def old(self, name: str) -> Iterator[Callable[[], None]]:
        """Run a worker from perago 0.6.1."""
        program = old_python(self.context).parent / "perago"
        with self._process([str(program), "start", TASK_MODULE, "-j", str(self.slots)], name):
            yield lambda: None

    @contextmanager
    def bare(self, name: str) -> Iterator[Callable[[], None]]:
        """Run as many bare loops as a worker has slots."""
        what = json.dumps({"repository": self.repository, "task": name})
        command = [sys.executable, str(SCRIPTS / "bare_attempts.py"), what]
        with contextlib.ExitStack() as loops:
            for _ in range(self.slots):
                loops.enter_context(self._process(command, name))
            yield lambda: None

    def _renew(self) -> None:
        """Start a fresh lakeFS with one empty repository."""
        subprocess.run([SERVERS_COMMAND, "restart", "lakefs", "--fresh"], check=True, capture_output=True)
        create_repository(self.server, self.repository)

    def _put(self, branch: str, text: str) -> str:
        """Commit the only file with new bytes."""
        file = self.context.folder / f"{branch}.txt"
        file.write_text(text)
        objects, commits = lakefs_sdk.ObjectsApi(self.server), lakefs_sdk.CommitsApi(self.server)
        objects.upload_object(self.repository, branch, "data/file.txt", content=os.fspath(file))
        wanted = lakefs_sdk.CommitCreation(message="input", metadata={})
        return str(commits.commit(self.repository, branch, wanted).id)

    def _look_at(self, name: str, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            self.steps = _mean_steps(answer.read().decode())
        for number in range(5 if self.context.quick else 20):
            # Vary the delay, so that it is not in step with the server's polling of its queues.
            time.sleep(0.2 + 0.037 * (number % 7))
            task = self.completed(self.start(name, self.amount + number))
            began = task["outputData"]["result"]["began"]
            self.starts.append(1000 * began - task["scheduledTime"])

    @contextmanager
    def _process(self, command: list[str], name: str) -> Iterator[None]:
        folder = self.context.folder / f"{name}-{uuid.uuid4().hex[:4]}"
        folder.mkdir()
        environ = {
            **self.context.environ,
            "PYTHONPATH": str(SCRIPTS),
            "PERAGO_BENCH_TASK": name,
            "PERAGO_ROOT": str(folder / "root"),
            "PERAGO_WORKSPACE_ROOT": str(folder / "work"),
            "PERAGO_LOG_ROOT": str(folder / "logs"),
        }
        log = folder / "stderr.txt"
        with log.open("wb") as out:
            # In its own process group: perago 0.6.1 leaves its children behind when it is terminated.
            process = subprocess.Popen(
                command, env=environ, cwd=folder, stdout=out, stderr=out, start_new_session=True
            )
            try:
                yield
            except BaseException:
                self.context.say(log.read_text(errors="replace")[-3000:])
                raise
            finally:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _figures(site: Site) -> list[Row]:
    rows = [row for slots in SLOTS for row in _rates(site, slots)]
    site.slots = SLOTS[0]
    site.turn("ours", site.watched)
    idle = "idle worker, scheduled to body's first line, median"
    return [*rows, Row(idle, statistics.median(site.starts), "ms", 100), *_split(site.steps)]


def _rates(site: Site, slots: int) -> list[Row]:
    """Measure the attempts per second of each contender with this many slots."""
    site.slots = slots
    site.servers_cpu.clear()
    contenders: dict[str, Callable[[], float]] = {
        "bare": lambda: site.turn("bare", site.bare),
        "old": lambda: site.turn("old", site.old),
        "ours": lambda: site.turn("ours", site.ours),
    }
    best = in_turns(contenders, 1 if site.context.quick else 3)
    rate = {name: site.amount / seconds for name, seconds in best.items()}
    what = f"-j {slots}"
    # The bound depends on the kind of servers. Bare loops are the limit only if there are cores for all of them.
    times = 3 if os.environ.get("PERAGO_DEV_PRODUCTION") else 2.5
    near = 0.9 if slots == SLOTS[0] else None
    return [
        Row(f"attempts with {what}", rate["ours"], "a second"),
        Row(f"{what}: perago 0.6.1", rate["old"], "a second"),
        Row(f"{what}: bare loops of the same server calls", rate["bare"], "a second"),
        Row(f"{what}: ours / perago 0.6.1", rate["ours"] / rate["old"], "times", times, "at least"),
        Row(f"{what}: ours / bare loops", rate["ours"] / rate["bare"], "times", near, "at least"),
        *(row for name in ("ours", "old") for row in _server_rows(what, name, site.servers_cpu[name])),
    ]


def _server_rows(what: str, contender: str, seconds: float) -> list[Row]:
    """Return the rate that the servers' own work allows, since they run on the same cores."""
    who = {"ours": "ours", "old": "perago 0.6.1"}[contender]
    most = (os.cpu_count() or 1) / seconds
    return [
        Row(f"{what}: {who}: CPU of all servers for one attempt", 1000 * seconds, "ms"),
        Row(f"{what}: {who}: with a worker that took no CPU at all", most, "a second at most"),
    ]


def _split(steps: Mapping[str, float]) -> list[Row]:
    return [
        Row("an attempt's steps together, mean under load", sum(steps.values()), "ms"),
        *(Row(f"of it: {step}", taken, "ms") for step, taken in steps.items()),
    ]


def _mean_steps(exposition: str) -> dict[str, float]:
    """Return the mean milliseconds of each step, in order, from the sums and counts in the worker's own histogram."""
    sums: dict[str, dict[str, float]] = {"sum": {}, "count": {}}
    for line in exposition.splitlines():
        for kind, found in sums.items():
            if line.startswith(f"perago_step_duration_seconds_{kind}{{"):
                step = line.partition('step="')[2].partition('"')[0]
                found[step] = float(line.rsplit(" ", 1)[1])
    return {step: 1000 * total / sums["count"][step] for step, total in sums["sum"].items()}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _site(context: Context) -> Site:
    context.needed("PERAGO_DEV_SERVERS")
    return Site(context, lakefs_client(context))
