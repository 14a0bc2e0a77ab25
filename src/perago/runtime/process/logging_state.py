"""Python's logging, kept before an author's code and put back after it.

What a body sets up for itself must not be there twice when the next one sets it up again.  So every logger gets back its
handlers, level and so on.  One that is new keeps its level, since a library that was imported meanwhile may have made it,
but gives up the handlers that print: what it logs reaches the task's log by the root logger.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any


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
