"""Suggestions for an unknown name: the known name that was probably meant, or a list of the known names.

The rule: every "did you mean" in Perago comes from here, so that the same typo gets the same suggestion in every
command.
"""

from __future__ import annotations

from collections.abc import Iterable

_MOST_LISTED = 12
_SHORTEST_PREFIX = 3
"""The minimum length at which a prefix is enough to suggest a name."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant: the most similar one, or else the only one with this prefix.

    Returns None if there is no such name.
    """
    from difflib import get_close_matches  # imported only on errors

    names = set(known)
    prefixed = [one for one in names if len(name) >= _SHORTEST_PREFIX and one.startswith(name)]
    close = get_close_matches(name, names, n=1)
    return close[0] if close else prefixed[0] if len(prefixed) == 1 else None


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return a "did you mean" question to append to an error message, or `otherwise` if `nearest` finds no name."""
    found = nearest(name, known)
    return otherwise if found is None else f"; did you mean {found!r}?"


def listed(names: Iterable[str], *, none: str = "none") -> str:
    """Return the names in the given order, for use in a sentence.  A long list is shortened and ends with a count."""
    every = list(names)
    more = f" and {len(every) - _MOST_LISTED} more" if len(every) > _MOST_LISTED else ""
    return ", ".join(every[:_MOST_LISTED]) + more if every else none
