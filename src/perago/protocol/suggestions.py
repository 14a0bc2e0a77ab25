"""What to say where a name is not known: the one that was probably meant, or those that there are.

The rule: every "did you mean" of Perago is made here, so that the same slip gets the same answer in every command.
"""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 12
_BEGINNING = 3
"""How much of a name must be there for its beginning to tell which one it is."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant: the most alike, or the only one that begins so."""
    from difflib import get_close_matches  # only where something is wrong

    names = set(known)
    begun = [one for one in names if len(name) >= _BEGINNING and one.startswith(name)]
    close = get_close_matches(name, names, n=1)
    return close[0] if close else begun[0] if len(begun) == 1 else None


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """The end of a sentence: a question that names the nearest of the known names, else `otherwise`."""
    found = nearest(name, known)
    return otherwise if found is None else f"; did you mean {found!r}?"


def listed(names: Iterable[str], *, none: str = "none") -> str:
    """Names in a sentence, in the order they come, the first of them where they are many."""
    every = list(names)
    more = f" and {len(every) - _MOST} more" if len(every) > _MOST else ""
    return ", ".join(every[:_MOST]) + more if every else none
