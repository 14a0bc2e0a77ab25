"""What to say where a name is not found: the one that was probably meant, or those that there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN = 10


def closest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant, if any."""
    return next(iter(get_close_matches(name, sorted(known), n=1)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or the names that there are, as the end of a sentence."""
    names = sorted(known)
    meant = closest(name, names)
    if meant:
        return f"did you mean {meant!r}?"
    if not names:
        return "there is none yet"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"there {'are' if len(names) > 1 else 'is'} {', '.join(names[:_SHOWN])}{more}"
