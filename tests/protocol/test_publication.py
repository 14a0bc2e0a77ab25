"""The decision table, row by row."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from perago.errors import PublishFenceError
from perago.protocol import policies
from perago.protocol.attempt import Attempt
from perago.protocol.metadata import INPUT_REF, KEY
from perago.protocol.outcome import shorten
from perago.protocol.policies import PolicyName
from perago.protocol.publication import (
    ELSEWHERE,
    MAX_RANGE,
    TABLE,
    AdvanceEffect,
    Commit,
    HeadState,
    TargetBranch,
    ViewChange,
    Workspace,
    build_workspace_publication_plan,
    head_state,
    read_advance,
)
from perago.protocol.refusal import BODY_NOT_RUN, DETAILS, USELESS, describe_unsigned, made_by, with_note
from perago.protocol.view import View

ATTEMPT = Attempt("wf", "task-2", "clean", "clean_events", retry_count=1, seq=1, iteration=0)
WORKSPACE = Workspace("songs", "main", "A", "events/")
OWN, FOREIGN, UNSIGNED = {KEY: "wf/clean", "perago.task_id": "task-1"}, {KEY: "another-wf/other"}, {}
FIRST_RUN = {KEY: "first-wf/clean", INPUT_REF: "A"}
DOCS = Path(__file__).parents[2] / "docs" / "publication.md"


def child(metadata: dict[str, str], *, dirty: bool = False) -> TargetBranch:
    head = Commit("H", ("A",), metadata=metadata)
    return TargetBranch(head, (head,), "input", dirty)


def chain(*signers: dict[str, str], reached: str = "input") -> TargetBranch:
    commits = tuple(Commit(f"H{n}", (f"H{n + 1}",), metadata=signer) for n, signer in enumerate(signers))
    return TargetBranch(commits[0], commits, reached)  # type: ignore[arg-type]


def with_effect(target: TargetBranch, *, change: str = "", new_actions: bool = False) -> TargetBranch:
    found = ViewChange(change, target.advance[-1]) if change else None
    return replace(target, advance_effect=AdvanceEffect(found, new_actions))


ROWS: dict[HeadState, TargetBranch] = {
    "at-input": TargetBranch(Commit("A", ("Z",))),
    "own-child": child(OWN),
    "unsigned-child": child(UNSIGNED),
    "unsigned-kept": child(UNSIGNED, dirty=True),
    "foreign-child": child(FOREIGN),
    "own-range": chain(OWN, OWN),
    "gated-child": TargetBranch(
        child(OWN).head, child(OWN).advance, dirty=True, gates=("_lakefs_actions/audit.yaml",)
    ),
    "dirty-child": child(OWN, dirty=True),
    "elsewhere": with_effect(child(FOREIGN)),
    "elsewhere-own": with_effect(chain(FOREIGN, OWN, UNSIGNED, OWN)),
    "elsewhere-new-actions": with_effect(chain(FOREIGN, UNSIGNED), new_actions=True),
    "other": chain(OWN, FOREIGN),
}
NEWEST_OWN = {"at-input": "", "elsewhere": "", "elsewhere-own": "H1", "elsewhere-new-actions": ""}
PASSED = {"elsewhere": 1, "elsewhere-own": 2, "elsewhere-new-actions": 2}
POLICIES = tuple(policies.POLICIES)


@pytest.mark.parametrize(
    ("state", "policy", "changed"), list(itertools.product(TABLE, POLICIES, (True, False)))
)
def test_every_row_is_decided_as_the_table_says(state: HeadState, policy: PolicyName, changed: bool) -> None:
    found = policies.POLICIES[policy]
    if state == "unsigned-child" and policy == "replace-signed":
        assert head_state(ATTEMPT, "A", ROWS[state], policy) == "unsigned-kept"
        return
    if state == "unsigned-kept" and policy != "replace-signed":
        expected = "dirty-child" if found.relocates else "unsigned-child"
        assert head_state(ATTEMPT, "A", ROWS[state], policy) == expected
        return
    if state in ("gated-child", "dirty-child") and not found.relocates:
        # These policies never move a branch back, so it does not matter whether it is dirty or gated.
        assert head_state(ATTEMPT, "A", ROWS[state], policy) == "own-child"
        return
    target = ROWS[state]
    assert head_state(ATTEMPT, "A", target, policy) == state
    step = TABLE[state][found.column][0 if changed else 1]
    if step == "refuse":
        with pytest.raises(PublishFenceError):
            build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=changed, policy=policy)
        return
    plan = build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=changed, policy=policy)
    assert (plan.step, plan.state, plan.expected_head) == (step, state, target.head.id)
    assert plan.supersedes == NEWEST_OWN.get(state, target.head.id)
    assert plan.rebased_over == PASSED.get(state, 0)


@pytest.mark.parametrize(
    "target", [child(FOREIGN), child(UNSIGNED), chain(OWN, FOREIGN), chain(UNSIGNED, UNSIGNED)]
)
@pytest.mark.parametrize("policy", ["supersede", "reuse"])
def test_a_change_of_the_view_is_refused_with_the_commit_and_the_path(
    target: TargetBranch, policy: PolicyName
) -> None:
    target = with_effect(target, change="events/plays/a.csv", new_actions=True)
    assert head_state(ATTEMPT, "A", target, policy) not in ELSEWHERE
    with pytest.raises(PublishFenceError) as refused:
        build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=True, policy=policy)
    made = target.advance[-1]
    cause, _, details = str(refused.value).partition(DETAILS)
    assert "changed 'events/plays/a.csv' (this task sees it) on branch 'main' of 'songs'" in cause
    assert f"(commit {made.id})" in cause
    assert "Start a new workflow" in cause
    assert f"{made.id} changed 'events/plays/a.csv'; " in details
    assert f"input ref A, head {target.head.id} ({made_by(target.head)})" in details


def test_own_commits_alone_are_no_commits_of_others() -> None:
    assert head_state(ATTEMPT, "A", with_effect(chain(OWN, OWN)), "supersede") == "own-range"
    assert head_state(ATTEMPT, "A", with_effect(child(OWN)), "supersede") == "own-child"


@pytest.mark.parametrize("reached", ["limit", "root"])
def test_a_range_that_does_not_reach_the_input_is_never_passed(reached: str) -> None:
    target = with_effect(chain(FOREIGN, OWN, reached=reached))
    assert head_state(ATTEMPT, "A", target, "supersede") == "other"


def test_a_refusal_names_input_head_maker_and_the_way_on() -> None:
    with pytest.raises(PublishFenceError) as refused:
        build_workspace_publication_plan(
            ATTEMPT, WORKSPACE, ROWS["foreign-child"], changed=True, policy="replace"
        )
    text = str(refused.value)
    for part in ("'main'", "'songs'", "input ref A", "head H", "another-wf/other", "Start a new workflow"):
        assert part in text


@pytest.mark.parametrize("target", [child({KEY: "wf/other"}), chain(UNSIGNED, {KEY: "wf/other"}, OWN)])
def test_a_refusal_by_a_step_of_the_same_workflow_says_that_both_write_the_branch(
    target: TargetBranch,
) -> None:
    with pytest.raises(PublishFenceError) as refused:
        build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=True, policy="replace")
    text = str(refused.value)
    for part in (
        "'other' of this same workflow",
        "side by side",
        "${other.output.workspace}",
        "branch of its own",
    ):
        assert part in text


@pytest.mark.parametrize("target", [child(FIRST_RUN), chain({KEY: "first-wf/next"}, FIRST_RUN)])
def test_a_refusal_by_an_earlier_run_of_the_same_step_says_so(target: TargetBranch) -> None:
    with pytest.raises(PublishFenceError) as refused:
        build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=True, policy="supersede")
    text = str(refused.value)
    for part in ("step 'clean' of workflow first-wf", "retried SUB_WORKFLOW", "from the current head"):
        assert part.lower() in text.lower()


@pytest.mark.parametrize("metadata", [{KEY: "first-wf/clean"}, {**FOREIGN, INPUT_REF: "A"}])
def test_a_commit_of_another_input_or_step_is_no_earlier_run(metadata: dict[str, str]) -> None:
    with pytest.raises(PublishFenceError) as refused:
        build_workspace_publication_plan(ATTEMPT, WORKSPACE, child(metadata), changed=True, policy="replace")
    assert "SUB_WORKFLOW" not in str(refused.value)


def test_a_refusal_over_own_commits_points_to_supersede() -> None:
    with pytest.raises(PublishFenceError, match='on_abandoned="supersede"'):
        build_workspace_publication_plan(
            ATTEMPT, WORKSPACE, ROWS["own-range"], changed=True, policy="replace"
        )


def test_a_dirty_branch_is_refused_with_what_to_do() -> None:
    with pytest.raises(PublishFenceError, match=r"uncommitted objects.*Commit or reset them"):
        build_workspace_publication_plan(
            ATTEMPT, WORKSPACE, ROWS["dirty-child"], changed=True, policy="replace"
        )


def test_a_gate_is_refused_by_name_with_supersede_as_the_way_on() -> None:
    with pytest.raises(PublishFenceError, match=r"_lakefs_actions/audit\.yaml.*on_abandoned=\"supersede\""):
        build_workspace_publication_plan(
            ATTEMPT, WORKSPACE, ROWS["gated-child"], changed=True, policy="replace"
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_range_that_is_too_long_has_the_seeds_text(policy: PolicyName) -> None:
    commits = (Commit(f"c{n}", (f"c{n + 1}",), metadata=OWN) for n in range(MAX_RANGE + 5))
    target = read_advance("A", commits)
    assert target.reached == "limit"
    with pytest.raises(PublishFenceError, match="advanced beyond supported publish range"):
        build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=True, policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_input_ref_has_the_seeds_text(policy: PolicyName) -> None:
    target = read_advance("A", [Commit("c0", ("c1",), metadata=OWN), Commit("c1", ())])
    assert target.reached == "root"
    with pytest.raises(PublishFenceError, match="no longer contains workspace input ref"):
        build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=True, policy=policy)


def test_reading_stops_at_the_input_and_leaves_it_out() -> None:
    commits = [Commit("c0", ("c1",)), Commit("c1", ("A",)), Commit("A", ("Z",))]
    assert [commit.id for commit in read_advance("A", commits).advance] == ["c0", "c1"]
    assert read_advance("A", commits[2:]) == TargetBranch(commits[2], (), "input")


def test_the_longest_supported_range_is_still_supported() -> None:
    commits = [Commit(f"c{n}", (f"c{n + 1}",), metadata=OWN) for n in range(MAX_RANGE - 1)]
    commits.append(Commit(f"c{MAX_RANGE - 1}", ("A",), metadata=OWN))
    target = read_advance("A", commits)
    assert (target.reached, len(target.advance)) == ("input", MAX_RANGE)
    assert head_state(ATTEMPT, "A", target, "supersede") == "own-range"


def test_the_author_of_a_commit_is_described_for_people() -> None:
    assert made_by(Commit("H", (), metadata=OWN)) == "made by Perago task wf/clean, attempt task-1"
    assert made_by(Commit("H", (), "fix typo")) == "not made by Perago: 'fix typo'"
    assert made_by(Commit("H", ())) == "not made by Perago"


def test_the_docs_show_this_very_table() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|[^|]*\| (.+?) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    shown = {state: (replace_cell, supersede_cell) for state, replace_cell, supersede_cell in rows}
    assert shown == {
        state: (_cell(families["replace"]), _cell(families["supersede"])) for state, families in TABLE.items()
    }


def _cell(steps: tuple[str, str]) -> str:
    changed, unchanged = steps
    return changed if changed == unchanged else f"{changed}; unchanged: {unchanged}"


def test_a_workspace_without_a_declared_view_is_seen_whole() -> None:
    assert WORKSPACE.view == View("events/")
    narrow = View("events/", reads=("plays",))
    assert replace(WORKSPACE, declared_view=narrow).view == narrow


LONG = Attempt(
    "5f51f7fe-da9e-4f98-a2ee-bfa7d91cc03f",
    "d693292b-e95e-4832-a8c6-35af04fe7ba7",
    "clean_the_plays_of_a_day",
    "clean",
    retry_count=1,
    seq=1,
    iteration=0,
)
SONGS = Workspace("songs-of-the-whole-year", "main", "a" * 64, "events/")


def moved_by_hand(metadata: dict[str, str], message: str = "") -> TargetBranch:
    head = Commit("b" * 64, (SONGS.ref,), message, metadata, 1_800_000_000.0, "alice@example.com")
    return TargetBranch(head, (head,))


MOVES = {
    "a step of this workflow": moved_by_hand(
        {KEY: f"{LONG.workflow_instance_id}/summarize_the_plays_of_a_day"}
    ),
    "the same step of another run": moved_by_hand(
        {KEY: "92ccbef6-2747-46e8-b0ce-2b195860468c/clean_the_plays_of_a_day", INPUT_REF: SONGS.ref}
    ),
    "a step of another workflow": moved_by_hand({KEY: "92ccbef6-2747-46e8-b0ce-2b195860468c/load_the_plays"}),
    "a command of Perago": moved_by_hand({KEY: "perago-put"}, "put 12 files"),
    "a person": moved_by_hand({}, "correct the title of a song\n\nIt was wrong."),
}


def refused_by(target: TargetBranch) -> str:
    with pytest.raises(PublishFenceError) as refused:
        build_workspace_publication_plan(LONG, SONGS, target, changed=True, policy="replace-signed")
    return str(refused.value)


@pytest.mark.parametrize(
    ("who", "begins"),
    [
        ("a step of this workflow", "step 'summarize_the_plays_of_a_day' of this same workflow moved"),
        (
            "the same step of another run",
            "step 'clean_the_plays_of_a_day' of workflow 92ccbef6-2747-46e8-b0ce-2b195860468c moved",
        ),
        (
            "a step of another workflow",
            "step 'load_the_plays' of workflow 92ccbef6-2747-46e8-b0ce-2b195860468c moved",
        ),
        ("a command of Perago", "`perago put` moved"),
        ("a person", "'alice@example.com', not a Perago task, moved"),
    ],
)
def test_a_reason_begins_with_who_moved_the_branch_and_when(who: str, begins: str) -> None:
    where = f"branch 'main' of 'songs-of-the-whole-year' at 2027-01-15 08:00:00 UTC (commit {'b' * 12})"
    assert refused_by(MOVES[who]).startswith(f"{begins} {where}")


def test_the_message_of_a_commit_that_no_step_signed_is_quoted_up_to_its_first_line() -> None:
    assert ", with the message 'correct the title of a song'." in refused_by(MOVES["a person"])
    assert ", with the message 'put 12 files'." in refused_by(MOVES["a command of Perago"])
    assert f"{'x' * 79}…'." in refused_by(moved_by_hand({}, "x" * 100))
    assert "with the message" not in refused_by(moved_by_hand({}))


def test_an_unsigned_commit_is_described_by_all_that_is_known_of_it() -> None:
    assert describe_unsigned(MOVES["a person"].head) == (
        f"{'b' * 12} by 'alice@example.com', made at 2027-01-15 08:00:00 UTC, with the message "
        "'correct the title of a song'"
    )
    for created in (0.0, 1e30, -1e30):
        commit = Commit("c" * 64, (), created=created)
        assert describe_unsigned(commit) == f"{'c' * 12}, made at an unknown time"


@pytest.mark.parametrize("who", MOVES)
@pytest.mark.parametrize("note", ["", BODY_NOT_RUN, USELESS])
def test_conductors_limit_cuts_only_the_details(who: str, note: str) -> None:
    reason = refused_by(MOVES[who])
    main, _, details = (with_note(reason, note) if note else reason).partition(DETAILS)
    assert f"input ref {SONGS.ref}, head {'b' * 64}" in details
    assert len(main) <= 500
    kept = shorten(with_note(reason, note) if note else reason, 500)
    assert kept.startswith(main)
    assert len(kept) <= 500


def test_a_reason_whose_main_part_alone_is_too_long_is_cut_in_its_middle() -> None:
    kept = shorten(f"{'who ' * 100}{'and how ' * 100}end.{DETAILS}never", 500)
    assert kept.startswith("who who")
    assert kept.endswith("end.")
    assert len(kept) <= 500
