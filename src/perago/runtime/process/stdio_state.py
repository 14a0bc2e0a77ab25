"""stdin, stdout and stderr, Python's objects and their descriptors: kept before an author's code, put back after it.

The code may leave anything in their place: a tee, an object that cannot be flushed, nothing at all, a closed
descriptor, a pipe that nobody reads.  The rule: what it printed is sent on as far as that is possible, and neither an
exception nor a flush that hangs keeps the streams from being put back.

Python's logging, kept before an author's code and put back after it.

What a body sets up for itself must not be there twice when the next one sets it up again.  So every logger gets back its
handlers, level and so on.  One that is new keeps its level, since a library that was imported meanwhile may have made it,
but gives up the handlers that print: what it logs reaches the task's log by the root logger.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

FLUSH_SECONDS = 1.0
"""How long the flush of a stream that is not ours may take."""

_NAMES = ("stdin", "stdout", "stderr")
"""By their descriptors."""


def keep_streams() -> Callable[[], None]:
    """Remember the streams; returns what puts them back."""
    kept = [getattr(sys, name, None) for name in _NAMES]
    descriptors = [_Descriptor(number) for number in range(len(_NAMES))]

    def restore() -> None:
        flushed = True
        left = _current()
        replaced = any(now is not then for now, then in zip(left, kept, strict=True))
        # A thread cannot start while the attribute is missing.
        for name, stream in zip(_NAMES, left, strict=True):
            setattr(sys, name, stream)
        if replaced or any(one.moved() for one in descriptors):
            _flush_in_time(left)
            flushed = _flush_in_time(kept)
        left.clear()
        for name, stream in zip(_NAMES, kept, strict=True):
            # This may be the end of a stream that closes a descriptor which it shares with ours: so before the next.
            setattr(sys, name, stream)
        for one in descriptors:
            one.put_back()
        for number, (name, stream) in enumerate(zip(_NAMES, kept, strict=True)):
            if stream is not None and not (flushed and _is_usable(stream)):
                setattr(sys, name, open_stream(number))
        # What a closed descriptor has held back.
        flush_output()

    return restore


def flush_output() -> None:
    """Send on what Python holds back of stdout and stderr; a stream that cannot be flushed does not matter."""
    _flush((getattr(sys, "stdout", None), getattr(sys, "stderr", None)))


def open_stream(number: int) -> TextIO | None:
    """A new stream on descriptor 0, 1 or 2; None where there is no such descriptor."""
    # Line by line: what a body prints is seen while it runs, and is there though its process is killed.
    mode, buffering = ("r", -1) if number == 0 else ("w", 1)
    try:
        opened = open(  # noqa: SIM115 - it lives as long as the process
            number, mode, encoding="utf-8", errors="backslashreplace", closefd=False, buffering=buffering
        )
        return cast(TextIO, opened)
    except OSError:
        return None


class _Descriptor:
    """A descriptor and a copy of it under a number that the body does not know."""

    def __init__(self, number: int) -> None:
        self._number = number
        try:
            self._copy = os.dup(number)
            self._blocking = os.get_blocking(number)
        except OSError:
            self._copy = -1

    def moved(self) -> bool:
        """Whether it is closed now, or another file."""
        if self._copy < 0:
            return False
        try:
            return not os.path.samestat(os.fstat(self._number), os.fstat(self._copy))
        except OSError:
            return True

    def put_back(self) -> None:
        """Make it what it was."""
        if self._copy < 0:
            return
        if self.moved():
            os.dup2(self._copy, self._number)
        if os.get_blocking(self._number) != self._blocking:
            os.set_blocking(self._number, self._blocking)
        os.close(self._copy)
        self._copy = -1


def _current() -> list[Any]:
    return [getattr(sys, name, None) for name in _NAMES]


def _flush_in_time(streams: Iterable[Any]) -> bool:
    """Flush on a thread of its own: the author's flush may wait for ever."""
    thread = threading.Thread(target=_flush, args=(streams,), name="perago-flush", daemon=True)
    thread.start()
    thread.join(FLUSH_SECONDS)
    return not thread.is_alive()


def _flush(streams: Iterable[Any]) -> None:
    for stream in streams:
        # BaseException: a flush of the author's may call sys.exit.
        with contextlib.suppress(BaseException):
            stream.flush()


def _is_usable(stream: Any) -> bool:
    try:
        return not getattr(stream, "closed", False)
    except ValueError:  # detached
        return False


def keep_logging() -> Callable[[], None]:
    """Remember how logging is set up; returns what puts it back."""
    root = logging.getLogger()
    disable = root.manager.disable
    before = {one: _state(one) for one in (root, *_loggers())}

    def restore() -> None:
        logging.disable(disable)
        for one in (root, *_loggers()):
            if one in before:
                _put_back(one, *before[one])
            elif printing := [handler for handler in one.handlers if prints(handler)]:
                one.handlers[:] = [handler for handler in one.handlers if handler not in printing]
                one.propagate = True

    return restore


def prints(handler: logging.Handler) -> bool:
    """Whether a handler writes to stdout or stderr; rich's has a console for that."""
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    if stream is None:
        return False
    return stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__) or _descriptor(stream) in (1, 2)


State = tuple[int, bool, bool, list[logging.Handler]]


def _state(logger: logging.Logger) -> State:
    return logger.level, logger.propagate, logger.disabled, list(logger.handlers)


def _put_back(
    logger: logging.Logger, level: int, propagate: bool, disabled: bool, handlers: list[logging.Handler]
) -> None:
    if logger.level != level:
        # By its setter, which forgets what loggers remember of their levels.
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
        # Not a file, closed, or an author's class.
        return -1
