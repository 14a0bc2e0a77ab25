"""Running what an author wrote: whatever it raises ends the attempt with a reason, and never the process.

An `Exception` already does.  KeyboardInterrupt, CancelledError, GeneratorExit, SystemExit and the like come out of a body
too, and would end an executor.  The one that passes is Ctrl-C in a process that nobody supervises, a unit test say.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from perago.declare.author_traceback import described, where
from perago.errors import TaskFailed


@contextmanager
def author_code(what: str) -> Iterator[None]:
    """Turn what is raised and is not an `Exception` into a `TaskFailed` that names it and says that `what` did it."""
    live = ctrl_c_is_live()
    try:
        yield
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


def _shown(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"a {type(value).__name__}"
