"""The tasks of the worker tests.  A suffix in their names separates tests that share one Conductor.

The params decide what a body does; each run of a body is noted in the file TEST_NOTES.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel

from perago import TaskTerminalError, WorkspaceSpec, require_glob, task
from perago.declare.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.protocol.attempt_record import AttemptRecord, record_line

SUFFIX = os.environ.get("TEST_SUFFIX", "here")
RESPONSE_SECONDS = int(os.environ.get("TEST_RESPONSE_SECONDS", "3"))
CONTROLS = TaskControls(
    retry=RetryPolicy(count=5, delay_seconds=0),
    timeout=TimeoutPolicy(response_seconds=RESPONSE_SECONDS, policy="RETRY"),
)


class Params(BaseModel):
    text: str = "made"
    seconds: float = 0
    wait_for: str = ""
    do: str = "write"
    size: int = 0


class Made(BaseModel):
    said: str


class Tee:
    """A stream that a careless body leaves in `sys.stdout`: it only has `write`."""

    def write(self, text: str) -> int:
        return len(text)


def note(line: str) -> None:
    with open(os.environ["TEST_NOTES"], "a") as notes:
        print(line, file=notes)


def act(folder: Path, params: Params) -> Made:
    """Do what the params say."""
    note(f"body {os.getpid()} {params.text}")
    if params.do == "remove the marker":
        (folder / ".perago-attempt.json").unlink()
        Path(params.wait_for + ".waits").touch()
    while params.wait_for and not Path(params.wait_for).exists():
        time.sleep(0.02)
    if params.do == "hold the GIL":
        hold_the_gil(params.seconds)
    elif params.do == "print":
        print("printed by the body", params.text)
        os.write(2, b"printed past Python\n")
    elif params.do == "leave a tee":
        print("printed before the tee")
        sys.stdout = Tee()  # type: ignore[assignment]
    elif params.do == "close descriptor 1":
        print("printed before the closing")
        os.close(1)
    elif params.do == "spoil the process":
        os.chdir(folder)
        os.umask(0o777)
        os.environ.clear()
        sys.path.clear()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    elif params.do == "leave a thread":
        threading.Thread(target=threading.Event().wait, name="never-ends").start()
    elif params.do == "register an exit":
        atexit.register(note, f"exit {os.getpid()} {params.text}")
    elif params.do == "look at multiprocessing":
        parent = multiprocessing.parent_process()
        assert parent is not None
        how = (multiprocessing.get_start_method(), parent.pid == os.getppid(), parent.is_alive())
        note(f"{multiprocessing.current_process().name} {' '.join(map(str, how))}")
    elif params.do == "leave shared memory":
        note(f"shared {SharedMemory(create=True, size=8).name}")
    elif params.do == "interrupt":
        raise KeyboardInterrupt("by the body")
    elif params.do == "leave":
        os._exit(7)
    elif params.do == "give the secret away":
        print("the key is", " or ".join(forms_of_the_secret(os.environ)))
        raise ValueError("the key is " + " or ".join(forms_of_the_secret(os.environ)))
    elif params.do == "log":
        logging.getLogger("tasks").info("logged by the body %s", params.text)
        logging.getLogger("tasks").debug("not for people")
        logging.getLogger("perago.steps").info("said by Perago")
    elif params.do == "log its own way":
        own = logging.getLogger("own")
        own.addHandler(logging.StreamHandler())
        own.warning("logged its own way")
    elif params.do == "kill itself":
        print("printed before the kill")
        os.kill(os.getpid(), signal.SIGKILL)
    elif params.do == "forge":
        print(record_line(AttemptRecord("forged", "COMPLETED")))
    elif params.do == "fork and return":
        if os.fork() == 0:
            note(f"forked {os.getpid()}")
            return Made(said="by the fork")
        os.wait()
    elif params.do == "fork and raise":
        if os.fork() == 0:
            note(f"forked {os.getpid()}")
            raise ValueError("by the fork")
        os.wait()
    elif params.do == "leave a session":
        note(f"left {subprocess.Popen(['sleep', '600'], start_new_session=True).pid}")
        time.sleep(params.seconds)
    elif params.do == "leave a daemon":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                note(f"left {os.getpid()}")
                time.sleep(600)
            os._exit(0)
        os.wait()
        time.sleep(params.seconds)
    elif params.do == "say NUL":
        print("before\na\0b\nafter")
        raise TaskTerminalError("a \0 byte")
    elif params.do == "return NUL":
        return Made(said="a\0b")
    elif params.do == "fail":
        raise ValueError("as asked\n" + "with more to say\n" * 100)
    else:
        time.sleep(params.seconds)
    if params.do != "change nothing":
        (folder / f"{params.text}.txt").write_text(params.text)
    return Made(said=params.text if not params.size else "x" * params.size)


def forms_of_the_secret(environ: Mapping[str, str]) -> list[str]:
    """Return the Conductor secret as it is, in a URL, and in a header."""
    key, secret = environ["CONDUCTOR_AUTH_KEY"], environ["CONDUCTOR_AUTH_SECRET"]
    return [secret, quote(secret, safe=""), b64encode(f"{key}:{secret}".encode()).decode().rstrip("=")]


def hold_the_gil(seconds: float) -> None:
    """Block all other Python threads by matching one regular expression all the time."""
    rounds, began = 20, time.monotonic()
    while True:
        one = time.monotonic()
        re.match("(a+)+b", "a" * rounds)
        took = time.monotonic() - one
        if time.monotonic() - began + took >= seconds:
            return
        # Every additional letter doubles the time.
        if took * 2 < seconds - (time.monotonic() - began):
            rounds += 1


def declare(number: int) -> None:
    """Declare one task of the workflow."""

    @task(
        name=f"worker_step_{number}_{SUFFIX}",
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(prefix="/data", pre=[require_glob("*.txt")]),
        controls=CONTROLS,
    )
    def run(workspace: Path, params: Params) -> Made:
        return act(workspace, params)

    setattr(sys.modules[__name__], f"step_{number}", run)


for _number in (1, 2, 3):
    declare(_number)
