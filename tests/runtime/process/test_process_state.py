"""Whatever a body changes about its process is as before when it has ended."""

from __future__ import annotations

import decimal
import gc
import locale
import logging
import logging.config
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago.runtime.process.process_state import preserving_process_state


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _soft_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _lower_soft_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))


def _change_time_zone() -> None:
    os.environ["TZ"] = "Asia/Kolkata"
    time.tzset()


def _disable_loggers() -> None:
    logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "folder": (os.getcwd, lambda: os.chdir("/")),
    "umask": (_umask, lambda: os.umask(0o123)),
    "a new variable": (lambda: dict(os.environ), lambda: os.environ.update(SPOILED="1")),
    "a changed variable": (lambda: os.environ["PATH"], lambda: os.environ.update(PATH="/nowhere")),
    "a variable less": (lambda: os.environ.get("PATH"), lambda: os.environ.pop("PATH")),
    "time zone": (lambda: time.tzname, _change_time_zone),
    "stdout": (lambda: sys.stdout, lambda: setattr(sys, "stdout", None)),
    "stdin": (lambda: sys.stdin, lambda: setattr(sys, "stdin", None)),
    "handler": (
        lambda: signal.getsignal(signal.SIGUSR1),
        lambda: signal.signal(signal.SIGUSR1, lambda _number, _frame: None),
    ),
    "alarm": (
        lambda: signal.getitimer(signal.ITIMER_VIRTUAL),
        lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 99),
    ),
    "mask": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}),
    ),
    "path": (lambda: (id(sys.path), list(sys.path)), lambda: sys.path.insert(0, "/nowhere")),
    "another path": (lambda: (id(sys.path), list(sys.path)), lambda: setattr(sys, "path", [])),
    "argv": (lambda: list(sys.argv), lambda: sys.argv.append("more")),
    "excepthook": (lambda: sys.excepthook, lambda: setattr(sys, "excepthook", print)),
    "thread excepthook": (lambda: threading.excepthook, lambda: setattr(threading, "excepthook", print)),
    "warnings": (lambda: list(warnings.filters), lambda: warnings.simplefilter("ignore")),
    "locale": (lambda: locale.setlocale(locale.LC_ALL), lambda: locale.setlocale(locale.LC_ALL, "POSIX")),
    "decimals": (lambda: decimal.getcontext().prec, lambda: setattr(decimal.getcontext(), "prec", 3)),
    "log level": (lambda: logging.getLogger().level, lambda: logging.getLogger().setLevel(logging.CRITICAL)),
    "log handlers": (lambda: list(logging.getLogger().handlers), lambda: logging.basicConfig(force=True)),
    "no logs": (lambda: logging.getLogger().manager.disable, lambda: logging.disable(logging.CRITICAL)),
    "loggers": (lambda: logging.getLogger("perago.process_state").disabled, _disable_loggers),
    "a logger's handlers": (
        lambda: list(logging.getLogger("perago").handlers),
        lambda: logging.getLogger("perago").addHandler(logging.StreamHandler()),
    ),
    "a logger's way up": (
        lambda: logging.getLogger("perago").propagate,
        lambda: setattr(logging.getLogger("perago"), "propagate", False),
    ),
    "temporary folder": (lambda: tempfile.tempdir, lambda: setattr(tempfile, "tempdir", "/nowhere")),
    "socket time-out": (socket.getdefaulttimeout, lambda: socket.setdefaulttimeout(1.5)),
    "recursion": (sys.getrecursionlimit, lambda: sys.setrecursionlimit(12_345)),
    "switching": (sys.getswitchinterval, lambda: sys.setswitchinterval(0.5)),
    "tracing": (sys.getprofile, lambda: sys.setprofile(lambda *_: None)),
    "garbage": (gc.isenabled, gc.disable),
    "soft limit": (_soft_files, _lower_soft_files),
}


@pytest.mark.parametrize("case", CASES)
def test_changes_of_a_body_are_restored(case: str) -> None:
    read, change = CASES[case]
    before, lost = read(), []

    with preserving_process_state(lost.append):
        change()
        assert read() != before, "the change is none"

    assert read() == before
    assert lost == []


def test_a_logger_that_a_body_makes_has_no_handler_that_prints_afterwards(tmp_path: Path) -> None:
    made = f"made-by-a-body-{uuid.uuid4().hex}"
    into_file = logging.FileHandler(tmp_path / "log")

    with preserving_process_state():
        logging.getLogger(made).addHandler(logging.StreamHandler(sys.stdout))
        logging.getLogger(made).addHandler(into_file)
        logging.getLogger(made).propagate = False

    assert logging.getLogger(made).handlers == [into_file]
    assert logging.getLogger(made).propagate
    into_file.close()


def test_all_is_as_before_when_the_body_raises() -> None:
    here = os.getcwd()

    def body() -> None:
        with preserving_process_state():
            os.chdir("/")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        body()

    assert os.getcwd() == here


def test_a_signal_that_waits_behind_the_bodys_mask_never_comes() -> None:
    with preserving_process_state():
        signal.signal(signal.SIGUSR1, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        # To this thread alone: the test runner has others, which do not block it.
        signal.raise_signal(signal.SIGUSR1)

    # By default it would have ended this process.
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_change_that_cannot_be_undone_is_reported_and_the_rest_is_undone(tmp_path: Path) -> None:
    home, lost = os.getcwd(), []
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    try:
        with preserving_process_state(lost.append):
            os.umask(0o123)
            os.chdir("/")
            gone.rmdir()
    finally:
        os.chdir(home)

    assert len(lost) == 1
    assert lost[0].startswith("the current folder, and that cannot be undone (FileNotFoundError")
    assert _umask() != 0o123


def test_an_alarm_that_was_still_to_come_does_not() -> None:
    with preserving_process_state():
        signal.signal(signal.SIGALRM, lambda _number, _frame: None)
        signal.alarm(3600)

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_attempts_in_other_threads_leave_the_process_alone() -> None:
    """Check that an attempt that ends does not undo the setup of another one in the same process."""

    def body() -> None:
        with preserving_process_state():
            os.environ["SHARED"] = "1"

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()

    assert os.environ.pop("SHARED") == "1"
