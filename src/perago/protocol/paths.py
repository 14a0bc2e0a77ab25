"""Path rules, each defined in one place, and the two reserved names.

A rule returns True for a path that breaks it.  Each caller has a table of (rule, message), in the order in which the
rules are checked, and `first_broken` evaluates it:

    objects that become files     protocol/changes     LakeError
    objects in the embedded lake  lake/local/refs      LakeRefused
    prefixes, reads and writes    declare/workspace    TaskDefinitionError
    patterns in checks            declare/checks       TaskDefinitionError
    tables in checks              declare/table_checks TaskDefinitionError
    tables in Spark tasks         spark/paths          TaskFailed
    files that a body wrote       runtime/attempt/workdir, spark/places   PostGuardrailViolation
    files and prefix of a put     runtime/folder_upload, cli/put          RuntimeConfigError

The parts of a path are separated by slashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

MARKER = ".perago-attempt.json"
"""The name of Perago's marker file in a workdir."""

NUL = "\0"
ACTIONS = "_lakefs_actions/"
"""The prefix where lakeFS keeps its actions, including the fence."""

LONGEST_NAME = 255
"""The maximum length of a path part, in bytes, on all common file systems."""

LONGEST_PATH = 1024
"""The maximum length of an object path in lakeFS, in bytes."""

_DRIVE = re.compile(r"[A-Za-z]:")
_WILDCARDS = frozenset("*?[]{}")

Rule = Callable[[str], bool]


def first_broken(path: str, rules: Iterable[tuple[Rule, str]]) -> str | None:
    """Return the message of the first rule that the path breaks, or None."""
    return next((message for breaks, message in rules if breaks(path)), None)


def either(*rules: Rule) -> Rule:
    """Combine rules that share one message into one rule, which a path breaks if it breaks any of them."""
    return lambda path: any(breaks(path) for breaks in rules)


# --- the form of a path --------------------------------------------------------------------------------------


def is_empty(path: str) -> bool:
    """Return whether the path is empty."""
    return not path


def is_absolute(path: str) -> bool:
    """Return whether the path starts with a slash."""
    return path.startswith("/")


def has_drive(path: str) -> bool:
    """Return whether the path starts with a Windows drive."""
    return _DRIVE.match(path) is not None


def has_scheme(path: str) -> bool:
    """Return whether the path starts like a URI."""
    return ":" in path.partition("/")[0]


def has_empty_part(path: str) -> bool:
    """Return whether the path is absolute, ends in a slash, or has two slashes in a row."""
    return "" in path.split("/")


def has_dot_part(path: str) -> bool:
    """Return whether any part is `.`."""
    return "." in path.split("/")


def leads_out(path: str) -> bool:
    """Return whether any part is `..`."""
    return ".." in path.split("/")


def has_nul(path: str) -> bool:
    """Return whether the path contains a NUL, which neither file systems nor PostgreSQL accept."""
    return NUL in path


def has_backslash(path: str) -> bool:
    """Return whether the path contains a backslash, which is a separator on some systems and not on others."""
    return "\\" in path


def has_control_character(path: str) -> bool:
    """Return whether the path contains a non-printable character."""
    return not path.isprintable()


def has_outer_space(path: str) -> bool:
    """Return whether the path starts or ends with whitespace."""
    return path.strip() != path


def has_long_part(path: str) -> bool:
    """Return whether any part is longer than file systems allow."""
    return any(len(part.encode("utf-8", "surrogatepass")) > LONGEST_NAME for part in path.split("/"))


def is_not_unicode(path: str) -> bool:
    """Return whether the path is not valid Unicode, for example because it came from bytes that are not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return False


# --- patterns ------------------------------------------------------------------------------------------------


def has_wildcard(path: str) -> bool:
    """Return whether the path contains a wildcard and may therefore match several paths."""
    return not _WILDCARDS.isdisjoint(path)


def has_loose_double_star(path: str) -> bool:
    """Return whether any part mixes `**` with other characters."""
    return any("**" in part and part != "**" for part in path.split("/"))


# --- reserved names ------------------------------------------------------------------------------------------


def is_marker(path: str) -> bool:
    """Return whether the path's last part is the name of Perago's marker file."""
    return path.rpartition("/")[2] == MARKER


def has_marker_part(path: str) -> bool:
    """Return whether any part of the path is the name of Perago's marker file."""
    return MARKER in path.split("/")


def in_actions(object_path: str) -> bool:
    """Return whether an object is one of lakeFS's actions.  A folder's path must end with a slash."""
    return object_path.startswith(ACTIONS)
