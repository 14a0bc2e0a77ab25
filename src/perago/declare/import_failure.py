"""Why a task module cannot be imported, in one line: the author's line, what it raised, and what to do.

The rule: the place is the last line of the author's own code, never one of Perago's or of a library.
"""

from __future__ import annotations

import importlib
import linecache
import traceback
from pathlib import Path

from pydantic import ValidationError

from perago.declare.mistakes import Place, one_line
from perago.protocol.expressions import expressions_in

_LINE = 100


def told_failure(error: BaseException, target: str) -> str:
    """What the import of a target raised, as one line with its remedy."""
    if isinstance(error, SyntaxError) and error.filename:
        place = Place(error.filename, error.lineno or 1)
        return f"{place}: cannot be imported: {type(error).__name__}: {one_line(error.msg)}{_correct(place)}"
    what = f"cannot be imported: {_said(error)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_authors(frame.filename)]
    if not frames:
        return f"target {target!r}: {what}"
    places = [Place(frame.filename, frame.lineno or 1) for frame in frames]
    reached = f" (reached from {places[0]})" if len(places) > 1 else ""
    return f"{places[-1]}: {what}{_remedy(error) or _correct(places[-1])}{reached}"


def is_authors(file: str | None) -> bool:
    """Whether a file is the authors' own: not Perago's, not the standard library's, not an installed one's."""
    if file is None or file.startswith("<"):
        return False
    parts = Path(file).parts
    outside = Path(importlib.__file__).parents[1], Path(__file__).parents[1]
    return "site-packages" not in parts and not any(Path(file).is_relative_to(folder) for folder in outside)


def _said(error: BaseException) -> str:
    if isinstance(error, ValidationError) and _expressions(error):
        return f"{error.title}: {', '.join(_expressions(error))} cannot be checked before the workflow runs"
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r})"
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _remedy(error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        return "; install it for the Python that runs perago, or correct the import"
    if isinstance(error, SystemExit):
        return '; a module that is imported must not exit: put this below `if __name__ == "__main__":`'
    if isinstance(error, ValidationError) and _expressions(error):
        fields = ", ".join(f"{name}=…" for name in _expressions(error))
        return f"; write given({error.title}, {fields}) in place of {error.title}({fields})"
    return None


def _expressions(error: ValidationError) -> list[str]:
    """The fields that were given an expression, which a model cannot check yet."""
    wrong = error.errors(include_url=False, include_context=False)
    return [str(one["loc"][0]) for one in wrong if one["loc"] and any(expressions_in(one["input"]))]


def _correct(place: Place) -> str:
    line = one_line(linecache.getline(place.file, place.line))
    shown = line if len(line) <= _LINE else line[: _LINE - 1] + "…"
    return f"; correct this line: {shown}" if shown else ""
