"""Shortens a Spark failure to a one-line reason: the cause, the line of user code, and the tables.

The stack stays in the log.

Spark wraps the cause in a job abort, a stage failure and a lost task, with a stack in each message.  People need the
first line of the innermost cause, without the paths on this machine.  If Python code in a Spark worker raised an
exception, for example in a UDF, its traceback is part of the message text.  The reason names the last line of user code
in that traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from perago.declare.user_code import is_library
from perago.runtime.attempt.observer import with_workspace_paths

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError, ConnectionError)

JVM_IS_GONE = "Spark's JVM is gone: it was killed or ran out of memory (spark.driver.memory)"

_LONGEST = 240
_DEEPEST = 20
_PYTHON_ERROR = re.compile(
    r"^(?:pyspark\.errors\.[\w.]+|[A-Za-z_][\w.]*(?:Error|Exception)): .+", re.MULTILINE
)
_REMOTE_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\b(?:;.*)?", re.DOTALL)
"""Matches the code of an error condition, and the query plan that may follow it."""


def short_reason(error: BaseException, *, base: str, tables: Iterable[str] = ()) -> str:
    """Return the cause of a Spark failure, on one line.

    `base` is removed from paths, and `tables` are the ones that the attempt has used.
    """
    if isinstance(error, (Py4JNetworkError, ConnectionError)):
        return JVM_IS_GONE
    text = _cause(error)
    text = _SQLSTATE.sub("", with_workspace_paths(text, base))
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 2].rstrip() + " …"
    if place := remote_place(error):
        text += f" ({place})"
    used = sorted(set(tables))
    if used and not any(table in text for table in used):
        more = ", …" if len(used) > 3 else ""
        text += f" (tables: {', '.join(used[:3])}{more})"
    return text


def remote_place(error: BaseException) -> str:
    """Return the last line of user code in a Spark worker's traceback, such as "tasks.py:12 in clean".

    Returns "" if there is none.
    """
    frames = _REMOTE_FRAME.findall(all_messages(error))
    own = [frame for frame in frames if not _is_library_there(frame[0])]
    return "{}:{} in {}".format(own[-1][0].rpartition("/")[2], *own[-1][1:]) if own else ""


def all_messages(error: BaseException) -> str:
    """Return the messages of an error, of the Java exception behind it, and of that exception's causes."""
    messages, java = [str(error)], _java_exception(error)
    for _ in range(_DEEPEST):
        if java is None:
            break
        messages.append(str(java.getMessage() or ""))
        java = java.getCause()
    return "\n".join(messages)


def _is_library_there(file: str) -> bool:
    """Return whether a file, possibly on another machine, belongs to Python, Spark or an installed package."""
    return is_library(file) or any(part in file for part in ("/lib/python3", "pyspark.zip/", "/pyspark/"))


def _cause(error: BaseException) -> str:
    java = _java_exception(error)
    if java is None:
        return _first_line(str(error)) or type(error).__name__
    innermost, wrapped = java, str(java.getMessage() or "")
    for _ in range(_DEEPEST):
        following = innermost.getCause()
        if following is None:
            break
        innermost = following
    message = str(innermost.getMessage() or "")
    kind = innermost.getClass().getSimpleName()
    # An exception from Python code in a worker arrives as text, which includes the last line of the traceback.
    python = _PYTHON_ERROR.findall(message or wrapped) if kind == "PythonException" else []
    if python:
        return str(python[-1])
    line = _first_line(message)
    if line.startswith("["):
        return line  # Spark's own errors start with the error condition
    return f"{kind}: {line}" if line else kind


def _java_exception(error: BaseException) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def _first_line(text: str) -> str:
    """Return the first paragraph, but at most three lines of it, joined into one line."""
    lines = []
    for line in text.strip().splitlines():
        if not line.strip() or line.startswith(("\tat ", "  at ", "JVM stacktrace", "Driver stacktrace")):
            break
        lines.append(line.strip())
        if len(lines) == 3:
            break
    return " ".join(lines)
