"""Partitions: paths with the names of params in braces, such as `clean/day={day}`, and how they are filled.

A path with such names is a template.  Each attempt fills it with the values of its params, escaped as Spark escapes the
values in the names of partition folders, so that a table that Spark partitions has the folders that a task declares.

The rule: a filled value stays within its path part.  It holds no slash, no wildcard and no brace, and does not begin with
`.` or `_`, so it neither leads to another folder nor has a meaning in a pattern, and no table reader takes it for hidden.
`__HIVE_DEFAULT_PARTITION__`, which Spark writes for null and for empty text, is no value of a param either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from enum import Enum

from perago.protocol.paths import first_broken, has_wildcard, is_empty, is_not_unicode
from perago.protocol.view import literal_beginning

LONGEST_VALUE = 200
"""The maximum length of a value as filled, in bytes."""

_TEMPLATE = re.compile(r"\{([^\W\d]\w*)\}")
_ESCAPED = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{[\]^]""")
"""The characters that Spark escapes (`ExternalCatalogUtils.charToEscape`).  A closing brace is none of them."""
_ESCAPE = re.compile(r"%([0-9A-F]{2})")
_LONGEST_INT = 1024
"""The bits of the largest whole number that is formatted.  Python refuses to format very large ones."""

_NO_VALUE = (
    (is_empty, "must not be empty"),
    (is_not_unicode, "must be valid Unicode"),
    (
        lambda text: not text.isprintable(),
        "must not hold control characters or others that cannot be printed",
    ),
    (lambda text: text[0] in "._", "must not begin with '.' or '_'"),
    (lambda text: "}" in text, "must not hold '}'"),
    (
        lambda text: len(escaped(text).encode()) > LONGEST_VALUE,
        f"must not be longer than {LONGEST_VALUE} bytes, as the name of a folder",
    ),
)


class CannotFill(ValueError):
    """Raised if a value cannot fill a template.  The text says why, and never contains the value."""


def template_names(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the names in the templates of some paths, in order and without duplicates."""
    return tuple(dict.fromkeys(name for path in paths for name in _TEMPLATE.findall(path)))


def without_templates(path: str) -> str:
    """Return a path with a letter in place of each template, to check the rest of it."""
    return _TEMPLATE.sub("x", path)


def fill(path: str, texts: Mapping[str, str]) -> str:
    """Return the path with its templates filled.  Names without a text stay as they are."""
    return _TEMPLATE.sub(lambda found: texts.get(found[1], found[0]), path)


def escaped(text: str) -> str:
    """Return a value's text as Spark escapes it in the name of a partition's folder."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def unescaped(text: str) -> str:
    """Return the text that `escaped` has escaped."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def template_pattern(path: str) -> re.Pattern[str]:
    """Return a pattern that matches the fillings of a path, with a group for each of its names."""
    seen: set[str] = set()
    parts = []
    for number, part in enumerate(_TEMPLATE.split(path)):
        if number % 2 == 0:
            parts.append(re.escape(part))
        else:
            parts.append(f"(?P={part})" if part in seen else f"(?P<{part}>[^/]+?)")
            seen.add(part)
    return re.compile("".join(parts))


def filling(value: object) -> str:
    """Return the escaped text with which a value fills templates.  Raises `CannotFill` if it cannot."""
    text = _text(value.value if isinstance(value, Enum) else value)
    broken = first_broken(text, _NO_VALUE)
    if broken is not None:
        raise CannotFill(broken)
    return escaped(text)


def _text(value: object) -> str:
    match value:
        case str():
            return str.__str__(value)
        case int() if not isinstance(value, bool):
            if value.bit_length() > _LONGEST_INT:
                raise CannotFill(f"must not be longer than {LONGEST_VALUE} bytes, as the name of a folder")
            return int.__repr__(value)
        case date() if not isinstance(value, datetime):
            return date.isoformat(value)
        case _:
            raise CannotFill("must be text, a whole number or a date")


# --- before the params are known -------------------------------------------------------------------------------


def conservative(paths: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the folders that certainly contain every filling of the paths."""
    return None if paths is None else tuple(map(literal_beginning, paths))


def textual(path: str) -> str:
    """Return a path in which each template is a word of its own, to compare templates by their text."""
    return _TEMPLATE.sub(lambda found: f"\ue000{found[1]}\ue001", path)


def nearest_filling(template: str, path: str) -> str:
    """Return the filling of a template that comes closest to a path or pattern, in the form of `textual`.

    Two templates are compared by their text.  Where a pattern could match any filling, the folder above is returned.
    """
    others = path.split("/")
    found = []
    for number, part in enumerate(template.split("/")):
        other = others[number] if number < len(others) else ""
        if not (_TEMPLATE.search(part) or _TEMPLATE.search(other)):
            found.append(part)
        elif "**" in others[:number] or has_wildcard(without_templates(other)):
            break
        else:
            found.append(_nearest_part(part, other))
    return "/".join(found)


def _nearest_part(part: str, other: str) -> str:
    if not _TEMPLATE.search(other):
        return other if _fits(part, other) else textual(part)
    # A plain part may be what the other template is filled with.
    return textual(other) if not _TEMPLATE.search(part) and _fits(other, part) else textual(part)


def _fits(template: str, part: str) -> bool:
    literals = _TEMPLATE.split(template)[::2]
    return re.fullmatch(".+".join(map(re.escape, literals)), part) is not None
