"""The process state that user code may change, and how it is restored, so that one body cannot affect the next.

`_STATES` is the complete list.  Each entry saves the current state and returns a function that restores it.  The rule: every
entry is restored, whatever the other entries and the user code have done.  An entry that cannot be restored is reported to
`on_failure`.
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
from perago.runtime.process.stdio_state import save_logging, save_streams

log = logging.getLogger("perago.process_state")

Restore = Callable[[], object]
Save = Callable[[], Restore]
Value = TypeVar("Value")


# Computed only once: this takes longer than saving everything else.
_SIGNALS = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_LIMITS = tuple({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
# The C function, because Python's wrapper converts each result to an enum, which is slow.
_handler: Callable[[int], Any] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)


def log_unrestored(what: str) -> None:
    """Log that a part of the process state could not be restored. The process continues."""
    log.warning("the task changed %s", what)


@contextmanager
def preserving_process_state(on_failure: Callable[[str], None] = log_unrestored) -> Iterator[None]:
    """Run user code in this block, then restore the process state. Calls `on_failure` for each part that cannot be restored.

    Executors run bodies in the main thread. In any other thread this does nothing, because attempts there share the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    restores = [(name, save()) for name, save in _STATES]
    try:
        yield
    finally:
        for name, restore in restores:
            if (error := _restore_error(restore)) is not None:
                on_failure(f"{name}, and that cannot be undone ({describe(error)})")


def _restore_error(restore: Restore) -> BaseException | None:
    """Restore a state.  Returns the error if that fails twice, otherwise None."""
    failure: BaseException | None = None
    for _ in range(2):
        try:
            restore()
        except BaseException as error:
            # Try once more: the error may come from the body's last alarm.
            failure = error
        else:
            return None
    return failure


def _value(read: Callable[[], Value], write: Callable[[Value], object]) -> Save:
    """Return a saver for a state that has a getter and a setter."""

    def save() -> Restore:
        before = read()
        return lambda: None if read() == before else write(before)

    return save


def _attributes(owner: Any, *names: str) -> Save:
    """Return a saver for attributes that are restored by assigning the old object."""

    def save() -> Restore:
        before = [(name, getattr(owner, name)) for name in names]

        def restore() -> None:
            for name, value in before:
                setattr(owner, name, value)

        return restore

    return save


def _list(owner: Any, name: str) -> Save:
    """Return a saver for an attribute that is a list. It restores the same list object with the same items."""

    def save() -> Restore:
        before, items = getattr(owner, name), list(getattr(owner, name))

        def restore() -> None:
            setattr(owner, name, before)
            if before != items:
                before[:] = items

        return restore

    return save


def _timers() -> Restore:
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    idle = [timer for timer in timers if signal.getitimer(timer)[0] == 0]
    return lambda: [signal.setitimer(timer, 0) for timer in idle if signal.getitimer(timer)[0]]


def _signal_handlers() -> Restore:
    before = {number: _handler(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            if _handler(number) is not handler:
                # A handler that Python did not set is None here, and signal() raises for None.
                signal.signal(number, handler)

    return restore


def _signal_mask() -> Restore:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def restore() -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - before
        for number in signal.sigpending() & blocked:
            # Pending signals were meant for the body: ignoring them briefly discards them.
            signal.signal(number, signal.signal(number, signal.SIG_IGN))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return restore


def _current_folder() -> Restore:
    try:
        before = os.getcwd()
    except OSError:  # already removed
        return lambda: None
    return lambda: os.chdir(before)


def _umask() -> Restore:
    # umask has no getter: set a strict value briefly, in case another thread creates a file.
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
    saved = warnings.catch_warnings()
    saved.__enter__()
    return lambda: saved.__exit__(None, None, None)


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


_STATES: tuple[tuple[str, Save], ...] = (
    # Timers come first: a pending alarm would hit the restored handler, which may end the process.
    ("a timer", _timers),
    ("signal handlers", _signal_handlers),
    ("the signal mask", _signal_mask),
    ("trace functions", _value(lambda: (sys.gettrace(), sys.getprofile()), lambda two: _trace(*two))),
    # Logging comes before the streams, because a printing handler is recognized by its stream.
    ("logging", save_logging),
    ("its streams", save_streams),
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
