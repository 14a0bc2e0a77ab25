"""Running what an author wrote: whatever it raises ends the attempt with a reason, and never the process.

An `Exception` already does.  KeyboardInterrupt, CancelledError, GeneratorExit, SystemExit and the like come out of a body
too, and would end an executor.  The one that passes is Ctrl-C in a process that nobody supervises, a unit test say.

A process that an author's code forked, and that comes back out of it, ends there: it has the pipe, the clients and the
attempt of its parent, and would publish beside it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from perago.declare.author_traceback import described, where
from perago.errors import TaskFailed


@contextmanager
def author_code(what: str) -> Iterator[None]:
    """Turn what is raised and is not an `Exception` into a `TaskFailed` that names it and says that `what` did it."""
    live, pid = ctrl_c_is_live(), os.getpid()
    try:
        try:
            yield
        finally:
            if os.getpid() != pid:
                _end_fork(what, sys.exc_info()[1])
    except Exception:
        raise
    except SystemExit as left:
        place = where(left)
        at = f" ({place})" if place else ""
        raise TaskFailed(f"{what} called sys.exit({_shown(left.code)}){at}") from left
    except BaseException as error:
        if live and isinstance(error, KeyboardInterrupt):
            raise
        raise TaskFailed(f"{what} raised {described(error)}") from error


def ctrl_c_is_live() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt here; to be asked before the author's code can change that."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end_fork(what: str, error: BaseException | None) -> NoReturn:
    """End a forked process that came back; the caller is in its parent's attempt."""
    code = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit):
            # As Python itself would leave: nothing is 0, anything but a number is 1.
            code = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
        elif error is None:
            sys.stderr.write(
                f"process {os.getpid()}, which {what} forked, came back from it and is ended; end it with os._exit()\n"
            )
        else:
            traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        os._exit(code & 0xFF)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"a {type(value).__name__}"
