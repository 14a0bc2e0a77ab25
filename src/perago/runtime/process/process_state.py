"""What an author's code may change about its process, and how it is put back: one body cannot spoil the next.

`KEPT` is the whole list.  Each entry reads the present state and returns what restores it.  The rule: every entry is
restored, whatever the others and the author's code have done; an entry that cannot be is told to `lose`.
"""

from __future__ import annotations

import decimal
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from perago.protocol.outcome import describe
from perago.runtime.process.stdio_state import keep_logging, keep_streams

log = logging.getLogger("perago.process_state")

Restore = Callable[[], object]
Keep = Callable[[], Restore]
Value = TypeVar("Value")


# Read once: asking for them takes longer than all the rest.
_SIGNALS = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_LIMITS = tuple({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
# The function below Python's own, which makes an enumeration of each answer.
_handler: Callable[[int], Any] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)


def warn_of(what: str) -> None:
    """Say what could not be restored; for a process that runs on regardless."""
    log.warning("the task changed %s", what)


@contextmanager
def preserving_process_state(lose: Callable[[str], None] = warn_of) -> Iterator[None]:
    """Run an author's code; afterwards the process is as it was, but for what `lose` is told.

    In the main thread only, where executors run bodies: attempts in other threads share the process with each other.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    restores = [(name, keep()) for name, keep in KEPT]
    try:
        yield
    finally:
        for name, restore in restores:
            if (wrong := _wrong_with(restore)) is not None:
                lose(f"{name}, and that cannot be undone ({describe(wrong)})")


def _wrong_with(restore: Restore) -> BaseException | None:
    wrong: BaseException | None = None
    for _ in range(2):
        try:
            restore()
        except BaseException as error:
            # Once more: it may have been the body's alarm, which comes one last time.
            wrong = error
        else:
            return None
    return wrong


def _value(read: Callable[[], Value], write: Callable[[Value], object]) -> Keep:
    """A state that one function reads and another one writes."""

    def keep() -> Restore:
        before = read()
        return lambda: None if read() == before else write(before)

    return keep


def _attributes(owner: Any, *names: str) -> Keep:
    """Attributes of a module that hold an object each."""

    def keep() -> Restore:
        before = [(name, getattr(owner, name)) for name in names]

        def restore() -> None:
            for name, value in before:
                setattr(owner, name, value)

        return restore

    return keep


def _list(owner: Any, name: str) -> Keep:
    """An attribute that holds a list: the same list with the same items."""

    def keep() -> Restore:
        before, items = getattr(owner, name), list(getattr(owner, name))

        def restore() -> None:
            setattr(owner, name, before)
            if before != items:
                before[:] = items

        return restore

    return keep


def _timers() -> Restore:
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    idle = [timer for timer in timers if signal.getitimer(timer)[0] == 0]
    return lambda: [signal.setitimer(timer, 0) for timer in idle if signal.getitimer(timer)[0]]


def _signal_handlers() -> Restore:
    before = {number: _handler(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            if _handler(number) is not handler:
                # A handler that was not set by Python is None here, and signal() says that it cannot set that.
                signal.signal(number, handler)

    return restore


def _signal_mask() -> Restore:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def restore() -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - before
        for number in signal.sigpending() & blocked:
            # What waited behind the mask was meant for the body: ignoring it for a moment drops it.
            signal.signal(number, signal.signal(number, signal.SIG_IGN))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return restore


def _current_folder() -> Restore:
    try:
        before = os.getcwd()
    except OSError:  # it was removed before
        return lambda: None
    return lambda: os.chdir(before)


def _umask() -> Restore:
    # It can only be read by setting it: to a strict one, for another thread may make a file right now.
    before = os.umask(0o077)
    os.umask(before)
    return lambda: os.umask(before)


def _environment() -> Restore:
    before = dict(os.environ)

    def restore() -> None:
        now = dict(os.environ)
        if now == before:
            return
        for name in now.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if now.get(name) != value})
        if now.get("TZ") != before.get("TZ"):
            time.tzset()

    return restore


def _warnings_filters() -> Restore:
    kept = warnings.catch_warnings()
    kept.__enter__()
    return lambda: kept.__exit__(None, None, None)


def _decimal_context() -> Restore:
    before = decimal.getcontext().copy()
    return lambda: decimal.setcontext(before)


def _collect_garbage(on: bool) -> None:
    (gc.enable if on else gc.disable)()


def _trace(trace: Any, profile: Any) -> None:
    sys.settrace(trace)
    sys.setprofile(profile)


def _limits() -> dict[int, tuple[int, int]]:
    return {number: resource.getrlimit(number) for number in _LIMITS}


def _set_limits(before: dict[int, tuple[int, int]]) -> None:
    for number, limits in before.items():
        if resource.getrlimit(number) != limits:
            resource.setrlimit(number, limits)


def _owner() -> tuple[int, int, int, int]:
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid()


def _set_owner(before: tuple[int, int, int, int]) -> None:
    user, effective_user, group, effective_group = before
    os.seteuid(effective_user)
    os.setregid(group, effective_group)
    os.setreuid(user, effective_user)


KEPT: tuple[tuple[str, Keep], ...] = (
    # An alarm that is still to come would meet the handler of before, which may end the process: so it goes first.
    ("a timer", _timers),
    ("signal handlers", _signal_handlers),
    ("the signal mask", _signal_mask),
    ("trace functions", _value(lambda: (sys.gettrace(), sys.getprofile()), lambda two: _trace(*two))),
    # Before the streams: a handler that prints is known by the one it prints to.
    ("logging", keep_logging),
    ("its streams", keep_streams),
    ("its user or group", _value(_owner, _set_owner)),
    ("the current folder", _current_folder),
    ("the umask", _umask),
    ("the environment", _environment),
    ("sys.path", _list(sys, "path")),
    ("sys.argv", _list(sys, "argv")),
    ("hooks", _attributes(sys, "excepthook", "unraisablehook", "displayhook", "breakpointhook")),
    ("threading.excepthook", _attributes(threading, "excepthook")),
    ("warnings filters", _warnings_filters),
    ("the locale", _value(lambda: locale.setlocale(locale.LC_ALL), lambda it: locale.setlocale(locale.LC_ALL, it))),
    ("the decimal context", _decimal_context),
    ("tempfile.tempdir", _attributes(tempfile, "tempdir")),
    ("the default socket time-out", _value(socket.getdefaulttimeout, socket.setdefaulttimeout)),
    ("the recursion limit", _value(sys.getrecursionlimit, sys.setrecursionlimit)),
    ("the switch interval", _value(sys.getswitchinterval, sys.setswitchinterval)),
    ("garbage collection", _value(gc.isenabled, _collect_garbage)),
    ("its priority", _value(lambda: os.getpriority(0, 0), lambda it: os.setpriority(0, 0, it))),
    ("resource limits", _value(_limits, _set_limits)),
)  # fmt: skip
