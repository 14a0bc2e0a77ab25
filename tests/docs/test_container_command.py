"""The Containerfile's command, run as in a container: process 1, the image's user, its environment, signal and probes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.processes.commands import WAIT_SECONDS, Shell
from tests.support.worlds.clock import eventually

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
FILE = (DEPLOY / "Containerfile").read_text()
UID = re.findall(r"^USER (\d+):\d+$", FILE, re.MULTILINE)[0]
TASKS = """
from pydantic import BaseModel
from perago import task


class Nothing(BaseModel): ...


@task(name="nothing", owner_email="a@example.com")
def nothing(params: Nothing) -> Nothing:
    return Nothing()
"""

pytestmark = pytest.mark.slow


def as_process_one() -> list[str]:
    """Return the command prefix for a new PID namespace as that user, or [] if this machine does not allow it."""
    wrapper = [
        "unshare",
        "--user",
        f"--map-user={UID}",
        f"--map-group={UID}",
        "--pid",
        "--fork",
        "--mount-proc",
    ]
    allowed = shutil.which("unshare") and subprocess.run([*wrapper, "true"], check=False).returncode == 0
    return wrapper if allowed else []


def instruction(name: str) -> Any:
    return json.loads(re.findall(rf"^{name} (.*)$", FILE, re.MULTILINE)[0])


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def process_one(wrapper: subprocess.Popen[str]) -> int:
    """The worker itself: with a namespace it is the one child of the process that made it."""
    children = Path(f"/proc/{wrapper.pid}/task/{wrapper.pid}/children").read_text().split()
    return int(children[0])


def test_the_containers_command_answers_its_probes_and_ends_with_its_signal(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "tasks.py").write_text(TASKS)
    environ = Shell(tmp_path).environ | dict(re.findall(r"(PERAGO_\w+)=(\S+)", FILE))
    environ |= {"PERAGO_ROOT": str(tmp_path / "root"), "HOME": str(tmp_path)}
    port = free_port()
    # The embedded servers stand in for the real ones, and another port for the image's.
    [entry], arguments = instruction("ENTRYPOINT"), instruction("CMD")
    arguments = [word.replace("0.0.0.0:9464", f"127.0.0.1:{port}") for word in arguments]
    command = [str(Path(sys.executable).parent / entry), *arguments, "--local", "--register"]
    wrapper = as_process_one()
    with subprocess.Popen(
        [*wrapper, *command], cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True
    ) as ran:
        try:
            for probe in probes():
                url = f"http://127.0.0.1:{port}{probe}"
                eventually(lambda url=url: status(url) == 200, f"{url} answers", WAIT_SECONDS)
            os.kill(process_one(ran) if wrapper else ran.pid, getattr(signal, stop_signal()))
            _, said = ran.communicate(timeout=WAIT_SECONDS)
        finally:
            ran.kill()
    assert ran.returncode == 0, said
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert any(line["message"].startswith("draining (SIGTERM)") for line in lines)
    assert not wrapper or {line["pid"] for line in lines if line["logger"] == "perago.supervisor"} == {1}


def probes() -> list[str]:
    """Return the paths of the manifest's probes."""
    deployment = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))[-1]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return [container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")]


def stop_signal() -> str:
    return str(re.findall(r"^STOPSIGNAL (\w+)$", FILE, re.MULTILINE)[0])
