"""The marker of an unpublished run, on every lake: its commits are merged into run branches only."""

from __future__ import annotations

import pytest

from perago.errors import UnpublishedRun
from perago.lake.base import Lake, Merge
from perago.protocol.run_steps import MARKER_PATH, MARKER_TEXT
from tests.support.worlds.lake_work import Work

RUN = "perago-run-4df9afe8-9f5b-436a-bc8c-b3ab1be69a09-90375f03f023"
MARKER = {MARKER_PATH: MARKER_TEXT.encode()}


@pytest.fixture
def base(lake: Lake, work: Work) -> str:
    """A run branch that has the marker; returns the commit of `main` that it started from."""
    origin = work.commit("main", {"a": b"1"})
    lake.create_branch(work.repository, RUN, origin)
    work.commit(RUN, MARKER)
    return origin


def test_a_commit_of_a_run_is_merged_into_its_run_branch(lake: Lake, work: Work, base: str) -> None:
    head = work.head(RUN)
    work.stage("side", head, {"b": b"2"})
    lake.merge(work.repository, Merge("side", RUN, head, "a step", {}, 30))
    assert work.bytes_at(RUN, "b") == b"2"


@pytest.mark.parametrize("squash", [True, False], ids=["squash", "two parents"])
@pytest.mark.parametrize("way", ["the run branch", "a branch from it", "a branch with more commits"])
def test_it_is_merged_into_no_other_branch(lake: Lake, work: Work, base: str, way: str, squash: bool) -> None:
    source = RUN
    if way != "the run branch":
        source = "fork"
        lake.create_branch(work.repository, source, RUN, hidden=False)
    if way == "a branch with more commits":
        work.commit(source, {"c": b"3"})
    lake.create_branch(work.repository, "other", base, hidden=False)
    for target in ("main", "other"):
        merge = Merge(source, target, base, "by hand", {}, 30, squash=squash, allow_empty=not squash)
        with pytest.raises(UnpublishedRun, match="perago run:"):
            lake.merge(work.repository, merge)
        assert work.contents(target) == {"a": b"1"}


def test_without_its_marker_it_is_merged_like_any_other(lake: Lake, work: Work, base: str) -> None:
    work.commit(RUN, {"b": b"2"})
    lake.create_branch(work.repository, "side", RUN)
    lake.delete(work.repository, "side", [MARKER_PATH])
    lake.commit(work.repository, "side", "without the marker", {})
    work.merge("side", base)
    assert work.contents("main") == {"a": b"1", "b": b"2"}


def test_the_marker_itself_is_no_gate_of_a_run_branch(lake: Lake, work: Work, base: str) -> None:
    assert list(lake.gates(work.repository, RUN, RUN)) == []
