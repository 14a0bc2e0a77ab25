"""Paths of a Spark workspace: relative to the prefix, and never out of it.

Also which names Spark leaves below a table it wrote: they are nobody's data and are not published.
"""

from __future__ import annotations

from perago.errors import TaskFailed
from perago.protocol.changes import ACTIONS, MARKER

_MAGIC = frozenset("*?[]{}")
_LEFT_FOLDERS = ("_temporary", ".spark-staging", "__magic")
_SUCCESS = "_SUCCESS"


def checked_path(path: str, *, pattern: bool, prefix: str = "") -> str:
    """The path, if it stays inside the workspace; `pattern` says whether `*` and the like may be in it."""
    wrong = _wrong(path, pattern=pattern, prefix=prefix)
    if wrong is not None:
        raise TaskFailed(f"workspace path {path!r} is refused: {wrong}")
    return path


def is_leftover(path: str) -> bool:
    """Whether Spark made this on the way to a table: marks of success, checksums, folders of unfinished tasks."""
    *folders, name = path.rstrip("/").split("/")
    if any(part.startswith(_LEFT_FOLDERS) for part in folders) or name.startswith(_LEFT_FOLDERS):
        return True
    return name == _SUCCESS or (name.startswith(".") and name.endswith(".crc"))


def _wrong(path: object, *, pattern: bool, prefix: str) -> str | None:
    if not isinstance(path, str):
        return "it must be text"
    parts = path.split("/")
    found = None
    if not path:
        found = "it is empty; name a folder or file below the prefix"
    elif path.startswith("/") or ":" in parts[0]:
        found = "it must be relative to the workspace's prefix"
    elif ".." in parts:
        found = "'..' leads out of the workspace"
    elif "" in parts or "." in parts:
        found = "it has an empty part or '.'"
    elif "\\" in path or "\0" in path:
        found = "it must use '/' between its parts and hold no NUL"
    elif MARKER in parts or (prefix + path + "/").startswith(ACTIONS):
        found = "that name is Perago's or lakeFS's own"
    elif not pattern and _MAGIC & set(path):
        found = "a table is written to a plain path, without '*', '?', '[' or '{'"
    return found
