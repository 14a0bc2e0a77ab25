"""`perago partitions`: which partitions of a task are published, stale, missing, failed or rewritten."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perago.cli import output
from perago.cli.backfill import Over, Param, Where
from perago.cli.map import Target, task_of
from perago.cli.options import AsJson, Remote, Root, format_time, read_repository
from perago.cli.server_choice import choose_servers
from perago.protocol.ledger import MOST_COMMITS
from perago.protocol.names import SHORT

if TYPE_CHECKING:
    from perago.runtime.backfill.status import PartitionStatus

_STYLES = {"published": "green", "stale": "yellow", "failed": "red", "rewritten": "red", "unknown": "yellow"}


def partitions(
    target: Target,
    where: Where,
    over: Over = [],  # noqa: B006 - typer reads the default, and never writes it
    param: Param = [],  # noqa: B006
    root: Root = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """List the partitions of a task on a branch: which are published, stale, missing, failed or rewritten."""
    _, task = task_of(target)
    repository, named = read_repository(where)
    branch = named or "main"
    from perago.runtime.backfill.partitions import check_task, partitions_of
    from perago.runtime.backfill.status import Partitions
    from perago.runtime.lake_lookup import suggesting_existing_names
    from perago.runtime.ledger import Ledger

    check_task(task, "perago partitions")
    wanted = partitions_of(task, over, param) if over else None
    with choose_servers(root, remote, lake_only=True).open_lake() as lake:
        with suggesting_existing_names(lake, repository, branch):
            head = lake.head(repository, branch).id
        ledger = Ledger(lake, repository, head)
        states = Partitions(lake, task, ledger, branch)
        found = states.known() if wanted is None else states.of(wanted)
        cut = ledger.is_cut
    if as_json:
        output.data([_as_json(one) for one in found])
    else:
        _print(found)
    if cut:
        output.note(
            f"{repository}@{branch} has more than {MOST_COMMITS:,} commits: what was published before them is not known"
        )


def _print(found: list[PartitionStatus]) -> None:
    from perago.runtime.maps.rows import partition_text

    rows = [
        (
            partition_text(one.names) + (f" {one.params}" if one.params != "{}" else ""),
            one.status,
            "  ".join(filter(None, (_published(one), one.reason.partition("\n")[0]))),
            _STYLES.get(one.status),
        )
        for one in found
    ]
    width = max((len(row[0]) for row in rows), default=0)
    for name, status, rest, style in rows:
        output.say(f"{name:<{width}}  {status:<9}  {rest}".rstrip(), style)
    counts = Counter(one.status for one in found)
    parts = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    output.note(f"{len(found)} partition{'s' if len(found) != 1 else ''}{f': {parts}' if parts else ''}")


def _published(one: PartitionStatus) -> str:
    if one.commit is None:
        return ""
    since = f" from {one.input[:SHORT]}" if one.input else ""
    return f"{format_time(one.commit.created)}  {one.commit.id[:SHORT]}{since}"


def _as_json(one: PartitionStatus) -> dict[str, object]:
    return {
        "partition": dict(one.names),
        "ledger_key": one.params,
        "status": one.status,
        "commit": one.commit.id if one.commit is not None else None,
        "published": one.commit.created if one.commit is not None else None,
        "input": one.input or None,
        "reason": one.reason,
        "failed_in": one.failed_in or None,
    }
