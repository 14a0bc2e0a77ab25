"""Finds the pre-merge actions that guard a branch in lakeFS, other than Perago's own fence.

lakeFS treats every object below `_lakefs_actions/` as an action, whatever its file extension.  For a merge, it runs the
actions in the source whose `on: pre-merge` matches the destination.  An action without `branches` matches every branch;
otherwise one of its patterns has to match (Go's `path.Match`).  A hard reset runs no actions.

An action that may refuse a merge into a branch is called a gate of that branch.  The rule: anything that cannot be
parsed with certainty as an action counts as a gate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml

from perago.lake.base import Entry
from perago.lake.lakefs.fence import FENCE_PATH, FENCE_TEXT, Read, Recent
from perago.protocol.paths import ACTIONS
from perago.protocol.run_steps import is_run_marker

_EVENT = "pre-merge"
_MERGE_KEY = "<<"

# Go's path.Match: `*`, `?`, `[^a-z]`, and `\` before a literal character.
_CHARACTER = r"(?:\\.|[^\\\]-])"
_TOKEN = re.compile(
    rf"(?P<many>\*)|(?P<one>\?)|\[(?P<none_of>\^?)(?P<ranges>(?:{_CHARACTER}(?:-{_CHARACTER})?)+)\]"
    r"|\\(?P<escaped>.)|(?P<plain>[^\\\[*?])",
    re.DOTALL,
)


class Gates:
    """Finds the actions in a commit that may refuse a merge. Each commit is read once, since commits never change."""

    def __init__(self, entries: Callable[[str, str, str], Iterator[Entry]], read: Read) -> None:
        self._entries = entries
        self._read = read
        self._known: Recent[dict[str, bytes]] = Recent()

    def of(self, repository: str, commit: str, branch: str) -> Sequence[str]:
        """Return the action files in a commit that may refuse a merge into `branch`.

        Perago's own fence file is excluded if it is unmodified, and so is the marker of a run on a run branch.
        """
        actions = self._known.get(repository, commit)
        if actions is None:
            paths = [entry.path for entry in self._entries(repository, commit, ACTIONS)]
            actions = {path: b"".join(self._read(repository, commit, path)) for path in paths}
            self._known.keep(repository, commit, actions)
        return [
            path
            for path, text in actions.items()
            if not _is_fence(path, text) and not is_run_marker(path, text, branch) and is_gate(text, branch)
        ]


def is_gate(text: bytes, branch: str) -> bool:
    """Return whether an action, given as YAML text, may refuse a merge into a branch."""
    try:
        # BaseLoader keeps every scalar as a string. The default loader would read the key `on` as true.
        action = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        return True
    events = action.get("on") if _is_plain(action) else None
    if events is None or not _is_plain(events):
        return True
    return _EVENT in events and _applies(events[_EVENT], branch)


def _applies(event: Any, branch: str) -> bool:
    if not event or not _is_plain(event):
        return True
    patterns = event.get("branches") or []
    return not patterns or not isinstance(patterns, list) or any(_matches(one, branch) for one in patterns)


def _matches(pattern: Any, branch: str) -> bool:
    """Return whether a pattern matches a branch name, by the rules of Go's `path.Match`.

    An invalid pattern counts as a match, because it makes lakeFS refuse every merge.
    """
    if not isinstance(pattern, str):
        return True
    at, regex = 0, ""
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return True
        at, regex = token.end(), regex + _to_regex(token)
    try:
        return re.fullmatch(regex, branch) is not None
    except re.error:
        return True


def _to_regex(token: re.Match[str]) -> str:
    if token["many"]:
        return "[^/]*"
    if token["one"]:
        return "[^/]"
    if token["ranges"]:
        characters = re.findall(rf"(-?)({_CHARACTER})", token["ranges"])
        inside = "".join(dash + re.escape(one[-1]) for dash, one in characters)
        return f"[{token['none_of']}{inside}]"
    return re.escape(token["escaped"] or token["plain"])


def _is_fence(path: str, text: bytes) -> bool:
    return path == FENCE_PATH and text == FENCE_TEXT.encode()


def _is_plain(value: Any) -> bool:
    # A merge key adds keys that this loader does not resolve.
    return isinstance(value, dict) and _MERGE_KEY not in value
