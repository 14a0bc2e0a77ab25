"""`perago gc`: remove from the embedded lake what no branch and no tag leads to any more."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, DryRun, Remote, Root, Yes, duration
from perago.cli.server_choice import choose_servers, refuse_without_terminal
from perago.errors import RuntimeConfigError
from perago.settings import parse_duration

DEFAULT_AGE = "1d"


def gc(
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            parser=duration,
            help=f"Keep what is newer than AGE ({DEFAULT_AGE} by default).",
        ),
    ] = None,
    dry_run: DryRun = False,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove commits and objects of the embedded lake that no branch, tag or recorded run leads to."""
    from perago.backend import has_local_lake, open_local_lake
    from perago.runtime.runs.format import size
    from perago.runtime.sweep.recorded_commits import recorded_commits

    choice = choose_servers(root, remote, yes=yes, lake_only=True)
    settings = choice.settings
    if choice.remote:
        raise RuntimeConfigError(
            "perago gc is for the embedded lake: lakeFS collects its garbage itself, by the retention rules of the "
            "repository (docs/storage.md); add --local to clean up the embedded lake"
        )
    refuse_without_terminal("never" if dry_run else "before it deletes", yes=yes)
    if not has_local_lake(settings):
        raise RuntimeConfigError(
            f"there is no lake below {settings.root}: go to the folder that has it, or name its root with --root"
        )
    age = parse_duration(DEFAULT_AGE) if older_than is None else older_than
    choice.name_lake()
    before = time.time() - age
    with closing(open_local_lake(settings)) as lake:
        keep = recorded_commits(settings.root, settings.workspace_root)
        found = lake.find_garbage(before=before, keep=keep)
        if found and not dry_run:
            if not yes:
                choice.agree_everywhere(
                    f"Remove {_describe(found.commits, found.objects)}, {size(found.bytes)}?"
                )
            # Branches may have been made, and runs started, while the user read the question.
            keep = recorded_commits(settings.root, settings.workspace_root)
            found = lake.remove_garbage(before=before, keep=keep)
    left = _bytes_below(settings.root / "lake")
    if as_json:
        output.data(
            {
                "dry_run": dry_run,
                "commits": found.commits,
                "objects": found.objects,
                "bytes": found.bytes,
                "lake_bytes": left,
            }
        )
    elif not found:
        output.say(f"nothing to remove; the lake takes {size(left)}")
    else:
        verb = "would be removed" if dry_run else "removed"
        output.say(
            f"{_describe(found.commits, found.objects)} {verb}, {size(found.bytes)}; the lake takes {size(left)}"
        )


def _describe(commits: int, objects: int) -> str:
    return f"{commits} commit{'s' * (commits != 1)} and {objects} object{'s' * (objects != 1)}"


def _bytes_below(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return total
