"""The upstream of a result, over a history with everything that can happen to a publication, on both lakes."""

from __future__ import annotations

import re

import pytest

from perago.cli.upstream_view import tree_lines
from perago.errors import LakeNotFound
from perago.protocol.names import put_branch_name
from perago.runtime import upstream
from perago.runtime.branch_changes import plan_restore, restore, stage_merge
from perago.runtime.branch_commit import MERGE, RESTORE, BranchCommit, CommandKind
from perago.runtime.upstream import Limits, Node, Upstream, find_upstream
from tests.support.worlds.traced_history import TracedHistory, make_history
from tests.support.worlds.world import Made, World, make_task

EDGES = {
    "run": {"total": ["total/files.txt"]},
    "total": {"report": ["report/files.txt"], "raw": ["raw/a.csv", "raw/b.csv"]},
    "report": {"join": ["join/files.txt"]},
    "join": {"left": ["left/count.txt", "left/files.txt"], "right": ["right/files.txt"]},
    "left": {"clean": ["clean/files.txt"]},
    "right": {"clean": ["clean/files.txt"]},
    "clean": {"raw": ["raw/a.csv", "raw/b.csv"]},
    "raw": {},
}


def trace(world: World, path: str, ref: str = "main", limits: Limits | None = None) -> Upstream:
    return find_upstream(world.lake, world.repository, ref, path, limits)


def names(made: TracedHistory) -> dict[str, str]:
    """Return the names of the history's commits."""
    return {commit: name for name, commit in {**made.made, "run": made.run, "raw": made.imported}.items()}


def edges_of(found: Upstream, named: dict[str, str]) -> dict[str, dict[str, list[str]]]:
    return {
        named[id]: {named[one.commit]: list(one.paths) for one in node.inputs}
        for id, node in found.nodes.items()
    }


def on_main(world: World, kind: CommandKind) -> BranchCommit:
    branches = (put_branch_name(1e9, f"{number:012x}") for number in range(9))
    return BranchCommit(world.lake, kind, world.repository, "main", "soft", branches)


def by_kind(found: Upstream, kind: str) -> Node:
    [node] = [node for node in found.nodes.values() if node.kind == kind]
    return node


def test_a_result_leads_back_to_what_was_imported(world: World) -> None:
    made = make_history(world)

    found = trace(world, "total/files.txt")

    assert edges_of(found, names(made)) == EDGES
    assert [(one.commit, list(one.paths)) for one in found.inputs] == [(made.run, ["total/files.txt"])]
    assert not found.is_cut
    assert found.nodes[made.imported].kind == "import"
    # Only one file is that of the first attempt, byte by byte; the retry has made it again, and counts.
    assert made.superseded not in found.nodes
    assert found.nodes[made.made["left"]].commit.metadata["perago.supersedes"] == made.superseded


def test_a_folder_leads_to_all_writers_of_its_files(world: World) -> None:
    made = make_history(world)

    found = trace(world, "/")

    assert {names(made).get(one.commit, "other") for one in found.inputs} == {*EDGES, "other"} - {"total"}
    assert made.made["total"] in found.nodes


def test_what_happened_after_a_commit_does_not_count_at_it(world: World) -> None:
    made = make_history(world)
    found = trace(world, "left", made.made["join"])

    assert edges_of(found, names(made)) == {name: EDGES[name] for name in ("left", "clean", "raw")}


def test_merges_and_restores_lead_to_where_the_files_came_from(world: World) -> None:
    made = make_history(world)
    lake, repository = world.lake, world.repository
    lake.create_branch(repository, "dev", world.head().id)
    world.commit({"raw/a.csv": "3"}, branch="dev")
    changed = world.head("dev").id
    with stage_merge(on_main(world, MERGE), "dev", None) as staged:
        merged = staged.publish()
    by_hand = world.commit({"total/files.txt": "by hand"})
    plan = plan_restore(lake, repository, "main", made.run, ["total/files.txt"])
    restored = restore(on_main(world, RESTORE), plan, "back")

    again = trace(world, "total/files.txt")
    brought = trace(world, "raw")

    assert [one.commit for one in again.inputs] == [restored]
    assert by_kind(again, "restore").inputs[0].commit == made.run
    assert by_hand not in again.nodes
    assert [one.commit for one in brought.inputs] == [merged, made.imported]
    assert by_kind(brought, "merge").inputs[0].commit == changed


def test_a_deleted_file_leads_to_what_deleted_it(world: World) -> None:
    def delete(workspace, params):  # type: ignore[no-untyped-def]
        (workspace / "input.txt").unlink()
        return Made(said="gone")

    ref = world.run(make_task(delete)).outcome.output["workspace"]["ref"]
    found = trace(world, "data/input.txt")

    assert (found.kind, [one.commit for one in found.inputs]) == ("deleted", [ref])
    # The attempt saw the file, and everything else in its prefix.
    [read] = found.nodes[ref].inputs
    assert read.paths == ("data/deep/old.txt", "data/input.txt")
    with pytest.raises(LakeNotFound):
        trace(world, "never/there")


def test_a_publication_without_reads_counts_as_reading_all(world: World) -> None:
    result = world.run(make_task())
    head = world.head()
    metadata = {name: value for name, value in head.metadata.items() if name != "perago.reads"}
    world.put({"data/result.txt": "older perago"})
    old = world.lake.commit(world.repository, "main", "older perago", metadata)

    [node] = [node for id, node in trace(world, "data/result.txt").nodes.items() if id == old]

    assert [path for one in node.inputs for path in one.paths] == [
        "data/deep/old.txt", "data/input.txt", "database.txt"
    ]  # fmt: skip
    assert result.outcome.status == "COMPLETED"


def test_earlier_output_of_the_same_task_comes_last_and_is_marked(world: World) -> None:
    def body(workspace, params):  # type: ignore[no-untyped-def]
        (workspace / "out").mkdir(exist_ok=True)
        (workspace / "out" / params.text).write_text(params.text)
        return Made(said="")

    definition = make_task(body, prefix="/", reads=("data",), writes=("out",), name="again")
    first = world.run(definition, text="a").outcome.output["workspace"]["ref"]
    second = world.run(definition, text="b").outcome.output["workspace"]["ref"]

    inputs = trace(world, "out/b").nodes[second].inputs

    assert [(one.own, one.commit == first) for one in inputs] == [(False, False), (True, True)]


@pytest.mark.parametrize(
    ("limits", "nodes", "reason"),
    [
        (Limits(depth=2), {"run", "total"}, "2 steps away"),
        (Limits(nodes=3), {"run", "total", "report"}, "more than 3 commits"),
        (Limits(commits=4), {"run", "total", "report", "join"}, "not written by the newest 4 commits"),
    ],
)
def test_a_search_that_is_cut_says_where(world: World, limits: Limits, nodes: set[str], reason: str) -> None:
    made = make_history(world)

    found = trace(world, "total/files.txt", limits=limits)

    assert found.is_cut
    assert {names(made)[id] for id in found.nodes} >= nodes
    assert any(reason in cut for node in found.nodes.values() for cut in node.cut)


def test_a_table_of_too_many_files_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_history(world)
    monkeypatch.setattr(upstream, "MOST_FILES", 1)

    found = trace(world, "raw", made.made["clean"])

    assert (len(found.nodes), found.cut) == (1, ("it saw more than 1 files",))


def test_forged_metadata_ends_the_search_and_does_not_go_round(world: World) -> None:
    loop = {"perago.logical_task_key": "wf/step", "perago.task_id": "t", "perago.reads": "no list"}
    one = world.commit({"a": "1"}, metadata={**loop, "perago.input_ref": "main"})
    gone = world.commit({"b": "1"}, metadata={**loop, "perago.input_ref": "0" * 64})
    silent = world.commit({"c": "1"}, metadata=loop)

    assert one in [found.commit for found in trace(world, "a").nodes[one].inputs]
    assert "is gone" in trace(world, "b").nodes[gone].cut[0]
    assert "does not say" in trace(world, "c").nodes[silent].cut[0]


def test_a_commit_that_changed_more_than_a_page_is_asked_about_the_path_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_history(world)
    monkeypatch.setattr(upstream, "_PAGE", 0)
    assert edges_of(trace(world, "total/files.txt"), names(made)) == EDGES

    monkeypatch.setattr(upstream, "_MOST_ROOTS", 0)
    assert edges_of(trace(world, "total/files.txt"), names(made)) == EDGES


def test_the_tree_shows_each_commit_once_with_step_retry_and_code(world: World) -> None:
    made = make_history(world)

    lines = list(tree_lines(world.repository, "main", trace(world, "total/files.txt")))

    text = "\n".join(lines)
    for commit, name in names(made).items():
        text = text.replace(commit[:12], name.upper())
    text = re.sub(r"workflow [0-9a-f]{8}", "workflow W", text).replace(made.superseded[:12], "LOST")
    text = re.sub(r"code [0-9a-f]{12}(\+dirty)?", "code C", text).replace(world.repository, "songs")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "T", text).replace(world.head().id[:12], "HEAD")
    imported = re.search(r"imported.*", text)
    assert imported is not None
    text = text.replace(imported[0], "imported")
    left, right = (
        "│     {} left/count.txt, left/files.txt: LEFT step left (retry 1) of workflow W, supersedes LOST, code C, T",
        "│     {} right/files.txt: RIGHT step right of workflow W, code C, T",
    )
    assert [line[6:].rstrip() for line in text.splitlines()[3:]] in [
        _tree([right, left]),
        _tree([left, right]),
    ]
    assert text.splitlines()[:3] == [
        "total/files.txt in songs@main, at commit HEAD",
        "└─ total/files.txt: RUN run of workflow W, code C, T",
        "   └─ total/files.txt: TOTAL step total of workflow W, code C, T",
    ]


def _tree(arms: list[str]) -> list[str]:
    first, second = arms
    return [
        "├─ report/files.txt: REPORT step report of workflow W, code C, T",
        "│  └─ join/files.txt: JOIN step join of workflow W, code C, T",
        first.format("├─"),
        "│     │  └─ clean/files.txt: CLEAN step clean (retry 1) of workflow W, code C, T",
        "│     │     └─ raw/a.csv, raw/b.csv: RAW imported",
        second.format("└─"),
        "│        └─ clean/files.txt: CLEAN see above",
        "└─ raw/a.csv, raw/b.csv: RAW see above",
    ]
