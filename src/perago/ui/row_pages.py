"""The page about the rows of a table at two commits.

Rows are compared by `perago diff --rows` in a process of its own, so a file that makes the engine crash, hang or take much
memory does not end the page.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from perago.protocol.paths import has_nul
from perago.runtime.table_files import NAMES
from perago.ui.data_source import DataSource
from perago.ui.lake_pages import place
from perago.ui.rendering import render

LIMIT_BYTES = 64 * 1024 * 1024
"""The most bytes that one page downloads.  The command may read more."""
LONGEST_SECONDS = 60
_one_at_a_time = threading.Lock()


def rows(source: DataSource, request: Request) -> str:
    """Render the rows of a table that differ between two commits."""
    repository, left = place(source, request)
    query = request.query_params
    right, path, key = query.get("to", "main"), query.get("path", ""), query.get("key", "")
    commits = [source.lake.commit_at(repository, ref) for ref in (left, right)]
    diff, why = _compare(source, [repository, commits[0].id, commits[1].id, path], key)
    return render(
        "rows.html",
        source=source,
        view="data",
        repository=repository,
        refs=(left, right),
        commits=commits,
        path=path,
        key=key,
        diff=diff,
        formats=[NAMES[one] for one in dict.fromkeys(diff["formats"]) if one] if diff else [],
        why=why,
    )


def _compare(source: DataSource, arguments: Sequence[str], key: str) -> tuple[dict[str, Any] | None, str]:
    """Return the difference as the command prints it, or None and the reason why there is none."""
    servers = source.servers
    command = [sys.executable, "-m", "perago", "diff", "--rows", "--json", "--limit-bytes", str(LIMIT_BYTES)]
    command += ["--root", str(servers.settings.root), "--local" if servers.embedded else "--remote"]
    command += ["--key", key] if key else []
    if any(map(has_nul, (*arguments, key))):
        return None, "a name holds a NUL character"
    try:
        with _one_at_a_time:
            done = subprocess.run(
                [*command, "--", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LONGEST_SECONDS,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return None, f"comparing took more than {LONGEST_SECONDS} s: use `perago diff --rows`"
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout)
        return found, ""
    last = done.stderr.strip().rpartition("\n")[2]
    text = last.removeprefix("error: ") if last.startswith("error: ") else "comparing the rows failed"
    return None, source.mask(text)
