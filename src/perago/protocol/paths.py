"""What may be wrong with a path: the rules, each in one place, and the two names that are not a task's.

A rule is true of a path that breaks it.  Whoever takes paths has a table of (rule, what to say), in the order in which
they are asked, and `first_broken` goes through it:

    objects that become files     protocol/changes     LakeError
    objects of the embedded lake  lake/local/refs      LakeRefused
    prefixes, reads and writes    declare/workspace    TaskDefinitionError
    patterns of checks            declare/checks       TaskDefinitionError
    tables of checks              declare/table_checks TaskDefinitionError
    tables of Spark tasks         spark/paths          TaskFailed
    files that a body wrote       runtime/attempt/workdir, spark/branch_place   PostGuardrailViolation
    files and prefix of a put     runtime/folder_put, cli/put                   RuntimeConfigError

Parts are what stands between slashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

MARKER = ".perago-attempt.json"
"""Perago's own file in a workdir."""

NUL = "\0"
ACTIONS = "_lakefs_actions/"
"""Where lakeFS keeps its actions, the fence among them."""

LONGEST_NAME = 255
"""Bytes of one part, on every file system that matters."""

LONGEST_PATH = 1024
"""Bytes of an object's path, lakeFS's limit."""

_DRIVE = re.compile(r"[A-Za-z]:")
_WILDCARDS = frozenset("*?[]{}")

Rule = Callable[[str], bool]


def first_broken(path: str, rules: Iterable[tuple[Rule, str]]) -> str | None:
    """What the first rule that the path breaks has to say, or None."""
    return next((said for breaks, said in rules if breaks(path)), None)


def either(*rules: Rule) -> Rule:
    """Rules that are told in one sentence."""
    return lambda path: any(breaks(path) for breaks in rules)


# --- the form of a path --------------------------------------------------------------------------------------


def is_empty(path: str) -> bool:
    """There is nothing."""
    return not path


def is_absolute(path: str) -> bool:
    """It begins at a root."""
    return path.startswith("/")


def has_drive(path: str) -> bool:
    """It begins with a drive of Windows."""
    return _DRIVE.match(path) is not None


def has_scheme(path: str) -> bool:
    """It begins as a URI does."""
    return ":" in path.partition("/")[0]


def has_empty_part(path: str) -> bool:
    """Absolute, with a slash at its end, or with two in a row."""
    return "" in path.split("/")


def has_dot_part(path: str) -> bool:
    """One part is `.`."""
    return "." in path.split("/")


def leads_out(path: str) -> bool:
    """One part is `..`."""
    return ".." in path.split("/")


def has_nul(path: str) -> bool:
    """No file system takes a NUL, and no text of PostgreSQL does."""
    return NUL in path


def has_backslash(path: str) -> bool:
    """A separator on one system and a letter on another."""
    return "\\" in path


def has_control_character(path: str) -> bool:
    """Something in it cannot be shown."""
    return not path.isprintable()


def has_outer_space(path: str) -> bool:
    """White space at an end."""
    return path.strip() != path


def has_long_part(path: str) -> bool:
    """A part that no file system takes as a name."""
    return any(len(part.encode("utf-8", "surrogatepass")) > LONGEST_NAME for part in path.split("/"))


def is_not_unicode(path: str) -> bool:
    """It came from a file system as bytes that are not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return False


# --- patterns ------------------------------------------------------------------------------------------------


def has_wildcard(path: str) -> bool:
    """It may stand for several paths."""
    return not _WILDCARDS.isdisjoint(path)


def has_loose_double_star(path: str) -> bool:
    """`**` beside other letters in one part."""
    return any("**" in part and part != "**" for part in path.split("/"))


# --- names that are taken ------------------------------------------------------------------------------------


def is_marker(path: str) -> bool:
    """A file of the marker's name, in whichever folder."""
    return path.rpartition("/")[2] == MARKER


def has_marker_part(path: str) -> bool:
    """A file or a folder on the way has the marker's name."""
    return MARKER in path.split("/")


def in_actions(object_path: str) -> bool:
    """An object among lakeFS's actions; a folder's path needs its slash at the end."""
    return object_path.startswith(ACTIONS)
