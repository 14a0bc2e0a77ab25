"""Saves and restores stdin, stdout, stderr (Python's objects and their descriptors) and logging around user code.

User code may leave anything in place of the streams: a tee, an object that cannot be flushed, nothing at all, a closed
descriptor, a pipe without a reader.  The rule: its output is flushed as far as possible, and neither an exception nor a
flush that hangs keeps the streams from being restored.

If one body sets up logging and the next body does the same, the setup must not be applied twice.  So every logger gets
its handlers, level and so on back.  A new logger keeps its level, since a newly imported library may have created it,
but loses the handlers that print: its records reach the task's log through the root logger.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

State = tuple[int, bool, bool, list[logging.Handler]]

FLUSH_SECONDS = 1.0
"""Time limit for flushing the streams after user code has changed them."""

_NAMES = ("stdin", "stdout", "stderr")
"""Stream names, indexed by file descriptor."""


def save_streams() -> Callable[[], None]:
    """Save the streams. Returns the function that restores them."""
    saved = [getattr(sys, name, None) for name in _NAMES]
    descriptors = [_Descriptor(number) for number in range(len(_NAMES))]

    def restore() -> None:
        flushed = True
        left = _current_streams()
        replaced = any(now is not then for now, then in zip(left, saved, strict=True))
        # A thread cannot start while one of these attributes is missing.
        for name, stream in zip(_NAMES, left, strict=True):
            setattr(sys, name, stream)
        if replaced or any(one.is_changed() for one in descriptors):
            _flush_in_time(left)
            flushed = _flush_in_time(saved)
        left.clear()
        for name, stream in zip(_NAMES, saved, strict=True):
            # This may delete a stream that closes one of our descriptors, so do it before restoring those.
            setattr(sys, name, stream)
        for one in descriptors:
            one.restore()
        for number, (name, stream) in enumerate(zip(_NAMES, saved, strict=True)):
            if stream is not None and not (flushed and _is_usable(stream)):
                setattr(sys, name, open_stream(number))
        # Write output that was buffered while a descriptor was closed.
        flush_output()

    return restore


def flush_output() -> None:
    """Flush stdout and stderr, ignoring streams that cannot be flushed."""
    _flush((getattr(sys, "stdout", None), getattr(sys, "stderr", None)))


def open_stream(number: int) -> TextIO | None:
    """Return a new stream on descriptor 0, 1 or 2, or None if it is closed."""
    # Line-buffered, so that output shows up while the body runs, and survives a kill.
    mode, buffering = ("r", -1) if number == 0 else ("w", 1)
    try:
        opened = open(  # noqa: SIM115 - stays open as long as the process
            number, mode, encoding="utf-8", errors="backslashreplace", closefd=False, buffering=buffering
        )
        return cast(TextIO, opened)
    except OSError:
        return None


class _Descriptor:
    """A descriptor, and its duplicate under a number that the body does not know."""

    def __init__(self, number: int) -> None:
        self._number = number
        try:
            self._copy = os.dup(number)
            self._blocking = os.get_blocking(number)
        except OSError:
            self._copy = -1

    def is_changed(self) -> bool:
        """Return whether the descriptor is now closed or refers to another file."""
        if self._copy < 0:
            return False
        try:
            return not os.path.samestat(os.fstat(self._number), os.fstat(self._copy))
        except OSError:
            return True

    def restore(self) -> None:
        """Restore the descriptor."""
        if self._copy < 0:
            return
        if self.is_changed():
            os.dup2(self._copy, self._number)
        if os.get_blocking(self._number) != self._blocking:
            os.set_blocking(self._number, self._blocking)
        os.close(self._copy)
        self._copy = -1


def _current_streams() -> list[Any]:
    return [getattr(sys, name, None) for name in _NAMES]


def _flush_in_time(streams: Iterable[Any]) -> bool:
    """Flush on a separate thread, because a user's flush may hang. Returns whether it finished in time."""
    thread = threading.Thread(target=_flush, args=(streams,), name="perago-flush", daemon=True)
    thread.start()
    thread.join(FLUSH_SECONDS)
    return not thread.is_alive()


def _flush(streams: Iterable[Any]) -> None:
    for stream in streams:
        # BaseException: a user's flush may call sys.exit.
        with contextlib.suppress(BaseException):
            stream.flush()


def _is_usable(stream: Any) -> bool:
    try:
        return not getattr(stream, "closed", False)
    except ValueError:  # detached
        return False


def save_logging() -> Callable[[], None]:
    """Save the logging setup. Returns the function that restores it."""
    root = logging.getLogger()
    disable = root.manager.disable
    before = {one: _state(one) for one in (root, *_loggers())}

    def restore() -> None:
        logging.disable(disable)
        for one in (root, *_loggers()):
            if one in before:
                _restore_logger(one, *before[one])
            elif printing := [handler for handler in one.handlers if prints(handler)]:
                one.handlers[:] = [handler for handler in one.handlers if handler not in printing]
                one.propagate = True

    return restore


def prints(handler: logging.Handler) -> bool:
    """Return whether a handler writes to stdout or stderr, directly or, like rich's handler, through a console."""
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    if stream is None:
        return False
    return stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__) or _descriptor(stream) in (1, 2)


def _state(logger: logging.Logger) -> State:
    return logger.level, logger.propagate, logger.disabled, list(logger.handlers)


def _restore_logger(
    logger: logging.Logger, level: int, propagate: bool, disabled: bool, handlers: list[logging.Handler]
) -> None:
    if logger.level != level:
        # The setter also clears the loggers' cached levels.
        logger.setLevel(level)
    logger.propagate, logger.disabled = propagate, disabled
    if logger.handlers != handlers:
        logger.handlers[:] = handlers


def _loggers() -> list[logging.Logger]:
    known = logging.getLogger().manager.loggerDict
    return [one for one in list(known.values()) if isinstance(one, logging.Logger)]


def _descriptor(stream: Any) -> int:
    try:
        return int(stream.fileno())
    except Exception:
        # The stream is not a file, is closed, or is an instance of a user's class.
        return -1
