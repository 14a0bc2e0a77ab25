"""Runs user code, and shows authors the errors in it.

    frame                                                 in the traceback   named in the reason
    Perago's own                                          no                 no
    before the author's first (e.g. pydantic's)           no                 no
    the author's: in the module that was called, or in    yes                the last one
      any file that is neither Python's nor installed
    in a library that the author called                   yes                no

Causes, contexts, notes and groups appear as Python shows them.  The rule: building the text never raises, whatever
the exception's class does, and the text has a maximum size.  It is truncated in the middle, after secrets are masked,
because a truncated secret would not be recognised.

An exception in user code ends the attempt with a reason, but never the process: KeyboardInterrupt, CancelledError,
GeneratorExit and SystemExit would otherwise end an executor.  Only Ctrl-C is let through, and only in a process
without a supervisor, such as a unit test.  A child process that user code forked is ended if it returns from the user
code: it has inherited its parent's pipe, clients and attempt, and would publish alongside its parent.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from perago.errors import PeragoError, TaskFailed
from perago.protocol.outcome import describe

MOST_LINES = 200
LINE_CHARS = 2000
_MOST_CHARS = 2 * MOST_LINES * LINE_CHARS
"""The maximum length of a traceback's text: twice what is shown, since Java frames are removed later."""
_OURS = str(Path(__file__).parents[1]) + "/"
_CALLERS = ("pydantic", "pydantic_core", "contextlib", "functools")
"""Library modules through which Perago may call an author's code."""
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_FROZEN = "<frozen "
_JAVA_FRAME = re.compile(r"\s+at [\w.$]+[(/]|\s+\.\.\. \d+ more")
"""Matches a Java stack frame.  Spark's errors contain hundreds of them."""
Frame = tuple[str, int, str, str]
"""The file, line, function and module of a stack frame."""


def describe_with_place(error: BaseException) -> str:
    """Return the error as a reason that names the last line of the author's code in the traceback.

    Perago's own errors do not name a line.
    """
    place = user_code_place(error)
    return f"{describe(error)} ({place})" if place and not isinstance(error, PeragoError) else describe(error)


def user_code_place(error: BaseException) -> str:
    """Return the location of the author's last frame, such as "tasks.py:12 in clean", or an empty string."""
    try:
        frames = _user_frames(list(_frames(error.__traceback__)))
    except BaseException:
        return ""
    if not frames:
        return ""
    file, line, function, _ = frames[-1]
    return f"{Path(file).name}:{line} in {function}"


def user_traceback(error: BaseException, mask: Callable[[str], str] = str) -> list[str]:
    """Return the traceback without Perago's frames, as a bounded list of lines.  Empty if no other frame is left."""
    try:
        whole = traceback.TracebackException.from_exception(_unwrap_cause(error), compact=True)
        text = mask("".join(whole.format())) if _drop_own_frames(whole) else None
    except BaseException:
        # The author's exception class may have attributes that do anything, even exit the process.
        return []
    if text is None:
        return []
    lines = _drop_middle(text.rstrip("\n")).split("\n")
    return _limit_lines([line for line in lines if not _JAVA_FRAME.match(line)])


def _unwrap_cause(error: BaseException) -> BaseException:
    """Return the exception from the author's code if a Perago error only wraps it, else the error itself."""
    while isinstance(error, PeragoError) and error.__cause__ is not None and not user_code_place(error):
        error = error.__cause__
    return error


def _frames(trace: TracebackType | None) -> Iterator[Frame]:
    for frame, line in traceback.walk_tb(trace):
        code = frame.f_code
        yield code.co_filename, line, code.co_name, str(frame.f_globals.get("__name__", ""))


def _user_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return the author's frames: those in the package that was called first, and those in files outside libraries."""
    begun = [frame for frame in frames if not _is_own_file(frame[0])]
    while begun and _is_caller_file(begun[0][0]):
        begun = begun[1:]
    if not begun:
        return []
    package = begun[0][3].partition(".")[0]
    return [one for one in begun if one[3].partition(".")[0] == package or not is_library(one[0])]


def is_library(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    return file.startswith((_FROZEN, *_LIBRARIES)) or "/site-packages/" in file or "/dist-packages/" in file


def _is_own_file(file: str) -> bool:
    return file.startswith(_OURS)


def _is_caller_file(file: str) -> bool:
    return is_library(file) and any(f"/{name}/" in file or file.endswith(f"/{name}.py") for name in _CALLERS)


def _drop_own_frames(report: traceback.TracebackException) -> bool:
    """Remove Perago's frames, and those before the author's first one, from an error and its causes.

    Returns whether any frame is left.
    """
    left, seen, waiting = False, set(), [report]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kept = [frame for frame in one.stack or () if not _is_own_file(frame.filename)]
        while kept and _is_caller_file(kept[0].filename):
            kept = kept[1:]
        # Python prints a "Traceback" header for an empty stack, but not for None.
        one.stack = traceback.StackSummary.from_list(kept) if kept else None  # type: ignore[assignment]
        left = left or bool(kept)
        groups = getattr(one, "exceptions", None) or ()
        waiting += [other for other in (one.__cause__, one.__context__, *groups) if other is not None]
    return left


def _drop_middle(text: str) -> str:
    """Return the text, with its middle removed if it is far too long."""
    if len(text) <= _MOST_CHARS:
        return text
    half = _MOST_CHARS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out\n{text[-half:]}"


def _limit_lines(lines: Sequence[str]) -> list[str]:
    shown = [line if len(line) <= LINE_CHARS else line[:LINE_CHARS] + " …" for line in lines]
    if len(shown) <= MOST_LINES:
        return shown
    half = MOST_LINES // 2
    return [*shown[:half], f"… {len(shown) - 2 * half} lines are left out", *shown[-half:]]


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Run the `with` block as user code: an exception that is not an `Exception` becomes a `TaskFailed`.

    The error names the exception and the code that raised it (`what`).
    """
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
        place = user_code_place(left)
        at = f" ({place})" if place else ""
        raise TaskFailed(f"{what} called sys.exit({_safe_repr(left.code)}){at}") from left
    except BaseException as error:
        if live and isinstance(error, KeyboardInterrupt):
            raise
        raise TaskFailed(f"{what} raised {describe_with_place(error)}") from error


def ctrl_c_is_live() -> bool:
    """Return whether Ctrl-C raises KeyboardInterrupt in this process.  Call it before user code can change that."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end_fork(what: str, error: BaseException | None) -> NoReturn:
    """End a child process that user code forked and that returned into its parent's attempt."""
    code = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit):
            # Exit as Python would: None means 0, and anything that is not a number means 1.
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


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"a {type(value).__name__}"
