"""A bar for transfers that somebody waits for: on a terminal only, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from perago.lake.base import Progress, Upload


@contextmanager
def transfer_bar(what: str, files: Sequence[Upload], *, quiet: bool) -> Iterator[Progress | None]:
    """Show how many bytes of `files` are through; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    # Rich is slow to import, and most output goes without it.
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=sum(file.size for file in files))
        yield lambda _files, size: shown.advance(task, size)
