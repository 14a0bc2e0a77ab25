"""Publishing a result: every row of the decision table as a whole attempt."""

from __future__ import annotations

import logging
import re

import pytest

from perago.protocol.names import replaced_tag_name
from perago.protocol.refusal import BODY_NOT_RUN, DETAILS
from perago.runtime.branch_changes import plan_restore, restore, stage_merge
from perago.runtime.branch_commit import MERGE, RESTORE, BranchCommit, CommandKind
from tests.support.faults.ports import recording, refusing
from tests.support.worlds.world import (
    Body,
    World,
    abandon,
    change_nothing,
    impatient,
    make_task,
    published_ref,
    write_result,
)

POLICIES = ["replace", "replace-signed", "supersede", "reuse"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_first_publication_is_one_commit_on_the_input(world: World, policy: str) -> None:
    a = world.head().id
    workflow = world.start(make_task(on_abandoned=policy))
    settled = world.execute(make_task(on_abandoned=policy), world.poll(make_task()))
    c = published_ref(settled)
    assert world.history()[:2] == [c, a]
    assert world.files() == {
        "data/input.txt": "in",
        "data/deep/old.txt": "old",
        "data/result.txt": "made",
        "database.txt": "not in the prefix",
    }
    assert world.workflow(workflow).status == "COMPLETED"
    assert world.workflow(workflow).output == {"ref": c}
    assert world.leftovers() == []
    assert world.workdirs() == []


def test_the_published_commit_is_signed_in_full(world: World) -> None:
    a = world.head().id
    world.start(make_task())
    assignment = world.poll(make_task())
    world.execute(make_task(), assignment)
    said = world.head().metadata
    attempt = assignment.attempt
    assert said["perago.phase"] == "confirm"
    assert said["perago.logical_task_key"] == attempt.logical_task_key
    assert said["perago.task_id"] == attempt.task_id
    assert said["perago.expected_head"] == said["perago.input_ref"] == a
    assert said["perago.prefix"] == "/data"
    assert said["perago.staging_branch"].startswith(
        f"perago-staging-{attempt.workflow_instance_id}-step-seq-"
    )


def test_the_output_answers_in_the_spelling_of_the_input(world: World) -> None:
    workspace = {
        "repository": world.repository,
        "branch": "main",
        "refType": "commit",
        "ref": world.head().id,
    }
    world.start_with(make_task(), {"workspace": workspace, "params": {"text": "x"}})
    settled = world.execute(make_task(), world.poll(make_task()))
    assert settled.outcome.output == {
        "workspace": {**workspace, "ref": world.head().id},
        "result": {"said": "x"},
    }


def test_an_output_has_the_type_of_its_ref_where_the_input_left_it_out(world: World) -> None:
    workspace = {"repository": world.repository, "branch": "main", "ref": world.head().id}
    world.start_with(make_task(), {"workspace": workspace, "params": {"text": "x"}})
    settled = world.execute(make_task(), world.poll(make_task()))
    assert (settled.outcome.output or {})["workspace"] == {
        **workspace,
        "ref_type": "commit",
        "ref": world.head().id,
    }


def test_deletions_and_file_folder_swaps_are_published_and_nothing_outside_is_touched(world: World) -> None:
    def body(workspace, params):
        (workspace / "input.txt").unlink()
        (workspace / "input.txt").mkdir()
        (workspace / "input.txt" / "now a folder.txt").write_text("a")
        (workspace / "deep" / "old.txt").unlink()
        (workspace / "deep").rmdir()
        (workspace / "deep").write_text("now a file")
        (workspace / "empty").mkdir()
        (workspace / "zero").touch()
        (workspace / ("long-" + "n" * 240)).write_text("l")
        (workspace / "ünï 日本 🎧.txt").write_text("u")
        return change_nothing(workspace, params)

    published_ref(world.run(make_task(body)))
    assert world.files() == {
        "data/input.txt/now a folder.txt": "a",
        "data/deep": "now a file",
        "data/zero": "",
        "data/" + "long-" + "n" * 240: "l",
        "data/ünï 日本 🎧.txt": "u",
        "database.txt": "not in the prefix",
    }


def test_only_what_changed_is_sent(world: World) -> None:
    sent = []

    class Counting:
        def __init__(self, lake):
            self._lake = lake

        def __getattr__(self, name):
            return getattr(self._lake, name)

        def upload(self, repository, branch, files, progress=None):
            sent.extend(file.path for file in files)
            self._lake.upload(repository, branch, files, progress)

    def body(workspace, params):
        (workspace / "input.txt").write_text("in")  # the same bytes again: read, found equal, not sent
        return write_result(workspace, params)

    world.start(make_task(body))
    published_ref(world.execute(make_task(body), world.poll(make_task()), lake=Counting(world.lake)))
    assert sent == ["data/result.txt"]


def test_a_crash_between_publish_and_completion_is_replaced_and_kept_under_a_tag(world: World) -> None:
    definition, a = make_task(), world.head().id
    workflow = world.start(definition, text="second")
    h = abandon(world, definition)
    settled = world.execute(definition, world.retry(definition))
    c = published_ref(settled)
    assert world.history()[:2] == [c, a]
    assert c != h
    assert world.replaced() == [h]
    assert world.files()["data/result.txt"] == "second"
    assert world.workflow(workflow).status == "COMPLETED"
    assert world.leftovers() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_no_op_commits_nothing_and_answers_with_the_input(world: World, policy: str) -> None:
    definition, a = make_task(change_nothing, on_abandoned=policy), world.head().id
    calls: list[str] = []
    world.start(definition)
    settled = world.execute(definition, world.poll(definition), lake=recording(world.lake, calls))
    assert published_ref(settled) == a
    assert world.head().id == a
    assert not {"upload", "commit", "merge", "relocate"} & set(calls)
    assert world.leftovers() == []


def test_a_no_op_after_an_abandoned_publication_relocates_to_the_input(world: World) -> None:
    a = world.head().id
    world.start(make_task())
    h = abandon(world, make_task())
    settled = world.execute(make_task(change_nothing), world.retry(make_task()))
    assert published_ref(settled) == a
    assert world.head().id == a
    assert world.replaced() == [h]
    assert world.leftovers() == []


def test_read_only_reads_no_head_runs_no_fence_and_drops_what_it_wrote(world: World) -> None:
    definition, a = make_task(read_only=True), world.head().id
    world.start(definition)
    lake = refusing(
        world.lake, "head", "log", "create_branch", "branches", "upload", "delete", "commit", "merge", "relocate",
        "has_uncommitted_changes", "fence_level", "create_tag",
    )  # fmt: skip
    settled = world.execute(
        definition, world.poll(definition), lake=lake, orchestrator=refusing(world.orchestrator, "current")
    )
    assert published_ref(settled) == a
    assert world.head().id == a
    assert "data/result.txt" not in world.files()
    assert world.workdirs() == []


def test_an_unsigned_direct_child_is_replaced_and_tagged_under_replace(world: World) -> None:
    definition, a = make_task(), world.head().id
    world.start(definition)
    assignment = world.poll(definition)
    h = world.commit({"data/by-hand.txt": "x"})
    c = published_ref(world.execute(definition, assignment))
    assert world.history()[:2] == [c, a]
    assert world.replaced() == [h]


@pytest.mark.parametrize("body", [write_result, change_nothing])
def test_a_replaced_commit_that_no_task_signed_is_told_with_its_tag(
    world: World, body: Body, caplog: pytest.LogCaptureFixture
) -> None:
    definition = make_task(body)
    world.start(definition)
    assignment = world.poll(definition)
    h = world.commit({"data/by-hand.txt": "x"}, message="correct a typo")
    seen = world.execute(definition, assignment).seen
    tag = replaced_tag_name(assignment.attempt, h)
    assert seen.replaced_unsigned == tag
    [warned] = [record for record in caplog.records if record.levelno == logging.WARNING]
    for part in (
        h[:12],
        "'correct a typo'",
        tag,
        'unsigned="refuse"',
        f"branch 'main' of '{world.repository}'",
    ):
        assert part in warned.getMessage()


def test_a_replaced_publication_of_the_same_step_is_not_told_as_somebody_elses(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    definition = make_task()
    world.start(definition)
    abandon(world, definition)
    caplog.clear()
    seen = world.execute(definition, world.retry(definition)).seen
    assert (seen.replaced_unsigned, len(world.replaced())) == ("", 1)
    assert [record for record in caplog.records if "no Perago task" in record.getMessage()] == []


def test_with_unsigned_refuse_the_commit_stays_and_the_reason_names_it(world: World) -> None:
    definition = make_task(on_abandoned="replace", unsigned="refuse")
    world.start(definition)
    assignment = world.poll(definition)
    h = world.commit({"data/by-hand.txt": "x"}, message="correct a typo")
    settled = world.execute(definition, assignment)
    reason = settled.outcome.reason or ""
    assert (settled.outcome.status, settled.refused, settled.outcome.final) == ("FAILED", True, True)
    # Only lakeFS knows who made the commit.
    assert re.match(r"('admin'|somebody|'.+'), not a Perago task, moved branch 'main' of ", reason)
    main, _, details = reason.partition(DETAILS)
    for part in (h[:12], "'correct a typo'", "Start a new workflow from the current head", BODY_NOT_RUN):
        assert part in main
    assert f"head {h}" in details
    assert (world.head().id, world.replaced(), world.leftovers()) == (h, [], [])


def test_with_unsigned_refuse_an_abandoned_publication_of_the_step_is_still_replaced(world: World) -> None:
    definition, a = make_task(on_abandoned="replace", unsigned="refuse"), world.head().id
    world.start(definition)
    h = abandon(world, definition)
    c = published_ref(world.execute(definition, world.retry(definition)))
    assert (world.history()[:2], world.replaced()) == ([c, a], [h])


@pytest.mark.parametrize("policy", ["replace-signed", "supersede", "reuse"])
def test_someone_elses_commit_stays_under_supersede_and_reuse(world: World, policy: str) -> None:
    definition = make_task(on_abandoned=policy)
    world.start(definition)
    assignment = world.poll(definition)
    h = world.commit({"data/by-hand.txt": "x"})
    settled = world.execute(definition, assignment)
    assert settled.outcome.status == "FAILED"
    assert f"head {h}" in (settled.outcome.reason or "")
    assert world.head().id == h


@pytest.mark.parametrize("policy", POLICIES)
def test_a_head_signed_by_another_task_is_never_covered(world: World, policy: str) -> None:
    definition = make_task(on_abandoned=policy)
    world.start(definition)
    assignment = world.poll(definition)
    h = world.commit({"data/x": "x"}, metadata={"perago.logical_task_key": "other-workflow/step"})
    settled = world.execute(definition, assignment)
    assert settled.outcome.status == "FAILED"
    assert "other-workflow/step" in (settled.outcome.reason or "")
    assert world.head().id == h
    assert world.leftovers() == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", [MERGE, RESTORE])
def test_a_merge_or_a_restore_by_command_is_never_covered(
    world: World, policy: str, kind: CommandKind
) -> None:
    definition = make_task(on_abandoned=policy)
    old = world.head().id
    world.lake.create_branch(world.repository, "dev", "main")
    world.put({"data/x": "dev"}, branch="dev")
    world.lake.commit(world.repository, "dev", "dev", {})
    world.commit({"data/input.txt": "newer"})
    world.start(definition)
    assignment = world.poll(definition)
    names = iter([f"perago-put-1700000000-00000000000{number}" for number in range(2)])
    commit = BranchCommit(world.lake, kind, world.repository, "main", "auto", names)
    if kind is MERGE:
        with stage_merge(commit, "dev", None) as staged:
            h = staged.publish()
    else:
        h = restore(commit, plan_restore(world.lake, world.repository, "main", old, []), "restore")
    settled = world.execute(definition, assignment)
    assert settled.outcome.status == "FAILED"
    assert kind.key in (settled.outcome.reason or "")
    assert world.head().id == h
    assert world.replaced() == []
    assert world.leftovers() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_head_that_moved_twice_is_refused(world: World, policy: str) -> None:
    definition = make_task(on_abandoned=policy)
    world.start(definition)
    assignment = world.poll(definition)
    world.commit({"data/x": "1"})
    h = world.commit({"data/x": "2"})
    settled = world.execute(definition, assignment)
    assert settled.outcome.status == "FAILED"
    assert "2 commit(s)" in (settled.outcome.reason or "")
    assert world.head().id == h


def test_an_input_ref_that_left_the_branch_is_refused_with_the_seeds_text(world: World) -> None:
    definition, root = make_task(), world.history()[-1]
    world.lake.create_branch(world.repository, "aside", root)
    elsewhere = world.commit({"data/elsewhere.txt": "x"}, branch="aside")
    world.start(definition, ref=elsewhere)
    settled = world.execute(definition, world.poll(definition))
    assert settled.outcome.status == "FAILED"
    assert "no longer contains workspace input ref" in (settled.outcome.reason or "")


def test_a_dirty_branch_is_not_relocated(world: World) -> None:
    definition = impatient(make_task())
    world.start(definition)
    h = abandon(world, definition)
    world.put({"data/uncommitted.txt": "x"})
    settled = world.execute(definition, world.retry(definition))
    assert settled.outcome.status == "FAILED"
    assert "uncommitted objects" in (settled.outcome.reason or "")
    assert world.head().id == h


def test_supersede_publishes_on_top_of_two_own_commits(world: World) -> None:
    a, texts = world.head().id, iter(["one", "two", "three"])

    def body(workspace, params):
        (workspace / "result.txt").write_text(next(texts))
        return change_nothing(workspace, params)

    definition = make_task(body, on_abandoned="supersede")
    world.start(definition)
    h1 = abandon(world, definition)
    world.orchestrator.time_out_in_progress("dead")
    h2 = abandon(world, definition)
    c = published_ref(world.execute(definition, world.retry(definition)))
    assert world.history()[:4] == [c, h2, h1, a]
    assert world.head().metadata["perago.supersedes"] == h2
    assert world.files()["data/result.txt"] == "three"
    assert world.replaced() == []
    assert world.leftovers() == []


def test_supersede_with_equal_bytes_completes_with_the_head_and_commits_nothing(world: World) -> None:
    definition = make_task(on_abandoned="supersede")
    world.start(definition)
    h = abandon(world, definition)
    assert published_ref(world.execute(definition, world.retry(definition))) == h
    assert world.head().id == h


def test_supersede_with_nothing_changed_brings_back_the_inputs_tree_of_the_prefix(world: World) -> None:
    before_files = world.files()
    world.start(make_task(on_abandoned="supersede"))
    h = abandon(world, make_task(on_abandoned="supersede"))
    settled = world.execute(make_task(change_nothing, on_abandoned="supersede"), world.retry(make_task()))
    c = published_ref(settled)
    assert world.history()[:2] == [c, h]
    assert world.files() == before_files


def test_reuse_answers_from_the_commit_without_running_the_body(world: World) -> None:
    ran = []

    def body(workspace, params):
        ran.append(params.text)
        return write_result(workspace, params)

    definition = make_task(body, on_abandoned="reuse")
    workflow = world.start(definition)
    h = abandon(world, definition)
    assignment = world.retry(definition)
    another_root = world.folder / "another machine, empty disk"
    settled = world.execute(definition, assignment, workspace_root=another_root)
    assert settled.outcome.output is not None
    assert settled.outcome.output["result"] == {"said": "made"}
    assert published_ref(settled) == h == world.head().id
    assert ran == ["made"]
    assert not another_root.exists()
    assert world.workflow(workflow).status == "COMPLETED"


def test_reuse_of_another_version_of_the_task_runs_the_body_again(world: World) -> None:
    old, new = make_task(on_abandoned="reuse"), make_task(change_nothing, on_abandoned="reuse", version="2")
    before_files = world.files()
    world.start(old)
    h = abandon(world, old)
    c = published_ref(world.execute(new, world.retry(new)))
    assert world.history()[:2] == [c, h]
    assert world.files() == before_files


def test_a_result_too_large_to_record_falls_back_to_supersede(world: World) -> None:
    definition = make_task(on_abandoned="reuse")
    world.start(definition, text="x" * 70_000)
    published_ref(world.execute(definition, world.poll(definition)))
    assert "perago.result" not in world.head().metadata
