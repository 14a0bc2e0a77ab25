"""Paths of a Spark workspace: relative to the prefix, and never out of it.

Also what Spark leaves below a table it wrote: it is nobody's data and is not published.  A file of a user whose name
only begins alike is not taken for that.

    _temporary/  __magic/  __magic_job-…/       tasks that did not finish (Hadoop's committers)
    .spark-staging-<id>/                        partitions that were not put in place
    _SUCCESS                                    the mark of a finished job
    .<name>.crc beside <name>                   Hadoop's checksums, where <name> is a file of Spark's, or the size is theirs
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perago.errors import TaskFailed
from perago.protocol.changes import ACTIONS, MARKER

_MAGIC = frozenset("*?[]{}")
_LEFT_FOLDER = re.compile(r"_temporary|__magic(_job-.*)?|\.spark-staging-[0-9a-f-]+")
_SUCCESS = "_SUCCESS"
_SPARKS_FILE = re.compile(r"part-\d{5}.*|_SUCCESS|_metadata|_common_metadata")
_CRC_EVERY = 512


def checked_path(path: str, *, pattern: bool, prefix: str = "") -> str:
    """The path, if it stays inside the workspace; `pattern` says whether `*` and the like may be in it."""
    wrong = _wrong(path, pattern=pattern, prefix=prefix)
    if wrong is not None:
        raise TaskFailed(f"workspace path {path!r} is refused: {wrong}")
    return path


def is_leftover(path: str, size: int, size_of: Callable[[str], int | None]) -> bool:
    """Whether Spark made this on the way to a table; `size_of` gives the size of another file, None where there is none."""
    *folders, name = path.split("/")
    if any(_LEFT_FOLDER.fullmatch(part) for part in folders) or name == _SUCCESS:
        return True
    if not (name.startswith(".") and name.endswith(".crc")):
        return False
    sibling = name[1:-4]
    found = size_of("/".join([*folders, sibling]))
    if found is None:
        return False
    # A magic number, the chunk's length, and a CRC for each chunk.
    return bool(_SPARKS_FILE.fullmatch(sibling)) or size == 8 + 4 * -(-found // _CRC_EVERY)


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
