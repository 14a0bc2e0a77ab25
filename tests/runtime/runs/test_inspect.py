"""Finding, listing and removing runs, without a process of theirs."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from perago.backend import Embedded, Real, open_read_only_orchestrator
from perago.errors import RuntimeConfigError
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.runs.inspect import RunHandle, find
from perago.runtime.runs.listing import UNKNOWN, chosen_runs, judge_runs, list_runs, remove_run
from perago.runtime.runs.log import follow, run_and_step
from perago.runtime.runs.record import (
    Run,
    RunEnd,
    find_run,
    holding,
    orchestrator_file,
    runs_folder,
    save_end,
    save_run,
)
from perago.settings import load_settings
from tests.contract.orchestrators import Line

LONG_AGO = 1_000_000.0


def a_run(root: Path, run_id: str, *, workflow_id: str = "wf", embedded: bool = True) -> Run:
    run = Run(run_id, workflow_id, "flow", ("tasks.py",), "/somewhere", embedded=embedded)
    save_run(root, run)
    return run


def servers(root: Path) -> Embedded:
    return Embedded(load_settings({}, root=root))


class TestInspect:
    def test_inspecting_a_run_times_nothing_out(self, tmp_path: Path) -> None:
        path = tmp_path / "orchestrator.db"
        with closing(LocalOrchestrator(path, clock=lambda: LONG_AGO)) as orchestrator:
            line = Line.fresh(orchestrator)
            workflow_id = line.begin(taskdef={"responseTimeoutSeconds": 1})
            line.take_one()
        looked = open_read_only_orchestrator(path)
        assert looked is not None
        with closing(looked):
            assert [task.status for task in looked.workflow(workflow_id).tasks] == ["IN_PROGRESS"]
        with closing(LocalOrchestrator(path)) as orchestrator:
            assert orchestrator.workflow(workflow_id).tasks[0].status == "TIMED_OUT"

    def test_inspecting_an_empty_root_creates_nothing(self, tmp_path: Path) -> None:
        assert servers(tmp_path / "root").open_read_only() is None
        assert list_runs(servers(tmp_path / "root"), 10) == []
        assert list(tmp_path.iterdir()) == []

    def test_a_run_is_found_by_its_own_id_and_by_its_workflows(self, tmp_path: Path) -> None:
        a_run(tmp_path, "20260101-one", workflow_id="wf-1")
        a_run(tmp_path, "20260102-two", workflow_id="wf-2")
        for name in ("20260101-one", "wf-1"):
            found = find(servers(tmp_path), name)
            assert (found.id, found.workflow_id) == ("20260101-one", "wf-1")
        assert find(servers(tmp_path), None).id == "20260102-two"
        with pytest.raises(RuntimeConfigError, match="did you mean '20260101-one'"):
            find(servers(tmp_path), "20260101-oen")

    def test_a_unique_beginning_of_an_id_is_enough_and_others_are_listed(self, tmp_path: Path) -> None:
        a_run(tmp_path, "20260101-one", workflow_id="abc1")
        a_run(tmp_path, "20260102-two", workflow_id="abd2")
        a_run(tmp_path, "30000101-far", workflow_id="abc3", embedded=False)
        for name in ("20260101", "abc"):
            assert find(servers(tmp_path), name).id == "20260101-one"
            assert find_run(tmp_path, "20260101").id == "20260101-one"
        for name, candidates in (("2026", "20260101-one, 20260102-two"), ("ab", "abc1, abd2")):
            with pytest.raises(RuntimeConfigError, match=f"several ids begin with '{name}': {candidates}; "):
                find(servers(tmp_path), name)
        with pytest.raises(RuntimeConfigError, match="is on Conductor"):
            find(servers(tmp_path), "3")
        for nothing in ("", "9", "*", "../x"):
            with pytest.raises(RuntimeConfigError, match="no run"):
                find(servers(tmp_path), nothing)

    def test_the_beginning_of_a_worker_s_workflow_is_enough(self, tmp_path: Path) -> None:
        with closing(LocalOrchestrator(tmp_path / "orchestrator.db")) as orchestrator:
            workflow_id = Line.fresh(orchestrator).begin()
        assert find(servers(tmp_path), workflow_id[:8]).workflow_id == workflow_id

    def test_a_step_s_name_comes_before_the_beginning_of_an_id(self, tmp_path: Path) -> None:
        path = orchestrator_file(tmp_path, "20260101-one")
        path.parent.mkdir(parents=True)
        with closing(LocalOrchestrator(path)) as orchestrator:
            a_run(tmp_path, "20260101-one", workflow_id=Line.fresh(orchestrator).begin())
        a_run(tmp_path, "20250101-old", workflow_id="only-a-beginning")
        found, step = run_and_step(servers(tmp_path), "only", None)
        assert (found.id, step) == ("20260101-one", "only")
        found, step = run_and_step(servers(tmp_path), "only-", None)
        assert (found.id, step) == ("20250101-old", None)

    def test_a_record_without_input_or_resumes_is_still_a_run(self, tmp_path: Path) -> None:
        a_run(tmp_path, "old")
        path = runs_folder(tmp_path) / "old" / "run.json"
        kept = json.loads(path.read_text())
        newer = ("input", "resumed", "full", "forced")
        path.write_text(json.dumps({name: kept[name] for name in kept if name not in newer}))
        (row,) = list_runs(servers(tmp_path), 10)
        assert (row.input, row.resumed, row.marks) == ({}, (), "")
        assert not find_run(tmp_path, "old").recompute

    def test_a_run_on_the_other_servers_is_told_with_the_way_there(self, tmp_path: Path) -> None:
        a_run(tmp_path, "here", workflow_id="wf-1")
        a_run(tmp_path, "there", workflow_id="wf-2", embedded=False)
        for name in ("there", None):
            with pytest.raises(RuntimeConfigError, match="run there is on Conductor: give --remote wf-2"):
                find(servers(tmp_path), name)
        real = Real(load_settings({}, root=tmp_path))
        assert find(real, None).workflow_id == "wf-2"
        elsewhere = "d71816a1-eb26-4214-8f03-0899a5ee2fe5"
        assert find(real, elsewhere).workflow_id == elsewhere
        with pytest.raises(RuntimeConfigError, match="leave out --remote"):
            find(real, "here")

    def test_a_name_that_is_no_runs_may_be_a_step_of_the_newest(self, tmp_path: Path) -> None:
        with closing(LocalOrchestrator(orchestrator_file(tmp_path, "run"))) as orchestrator:
            line = Line.fresh(orchestrator)
            workflow_id = line.begin()
            (step,) = {task.reference for task in orchestrator.workflow(workflow_id).tasks}
        a_run(tmp_path, "run", workflow_id=workflow_id)

        assert run_and_step(servers(tmp_path), None, None)[1] is None
        assert run_and_step(servers(tmp_path), "run", "x")[1] == "x"
        found, named = run_and_step(servers(tmp_path), step, None)
        assert (found.id, named) == ("run", step)
        with pytest.raises(
            RuntimeConfigError, match=f"neither a run nor a step of the newest one; did you mean '{step}'"
        ):
            run_and_step(servers(tmp_path), f"{step}x", None)
        with pytest.raises(
            RuntimeConfigError, match="'qqq' is neither a run nor a step of the newest one, which has "
        ):
            run_and_step(servers(tmp_path), "qqq", None)

    def test_without_runs_a_name_is_no_step_either(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeConfigError, match="no run 'clean' below"):
            run_and_step(servers(tmp_path), "clean", None)

    def test_following_ends_when_nobody_drives_the_run_any_more(self, tmp_path: Path) -> None:
        path = orchestrator_file(tmp_path, "one")
        with closing(LocalOrchestrator(path)) as orchestrator:
            line = Line.fresh(orchestrator)
            workflow_id = line.begin()
            attempt = line.take_one().attempt
            orchestrator.log(attempt, ["first"])
            found = RunHandle(servers(tmp_path).of_run("one"), workflow_id, a_run(tmp_path, "one"))
            held = holding(runs_folder(tmp_path) / "one")
            held.__enter__()
            pauses = []

            def pause(seconds: float) -> None:
                pauses.append(seconds)
                orchestrator.log(attempt, ["second"])
                held.__exit__(None, None, None)

            lines = [one.line.text for one in follow(found, orchestrator, pause=pause)]
        assert lines == ["first", "second"]
        assert len(pauses) == 1


class TestListing:
    def test_a_run_on_conductor_is_listed_as_it_ended_here(self, tmp_path: Path) -> None:
        a_run(tmp_path, "ended", embedded=False)
        save_end(tmp_path, "ended", RunEnd("FAILED", 1.0, 3.5, "clean: it broke"))
        (row,) = list_runs(servers(tmp_path), 10)
        assert (row.status, row.seconds, row.failed, row.resume) == ("FAILED", 2.5, "clean: it broke", "")

    @pytest.mark.parametrize(
        ("reason", "shown"),
        [("it 'broke' here\nand there", "it 'broke' here"), ("'dev' moved 'main'", "'dev' moved 'main'")],
    )
    def test_a_submitted_workflow_says_why_it_failed_without_conductors_words(
        self, tmp_path: Path, reason: str, shown: str
    ) -> None:
        with closing(LocalOrchestrator(tmp_path / "orchestrator.db")) as orchestrator:
            line = Line.fresh(orchestrator)
            workflow_id = line.begin(taskdef={"retryCount": 0})
            line.send(line.take_one(), "FAILED", reason=reason)
            assert (orchestrator.workflow(workflow_id).reason or "").startswith("Task ")
        (row,) = list_runs(servers(tmp_path), 10)
        assert (row.status, row.failed) == ("FAILED", shown)

    def test_a_run_whose_state_is_gone_hides_no_other(self, tmp_path: Path) -> None:
        a_run(tmp_path, "broken")
        (runs_folder(tmp_path) / "unreadable").mkdir()
        (runs_folder(tmp_path) / "unreadable" / "run.json").write_text("{")
        (row,) = list_runs(servers(tmp_path), 10)
        assert (row.id, row.status, row.resume) == ("broken", UNKNOWN, "")


class TestPruning:
    def test_old_runs_are_removed_and_running_or_younger_ones_stay(self, tmp_path: Path) -> None:
        now = time.time()
        for name, age in (("old", 100), ("going-on", 100), ("young", 10)):
            a_run(tmp_path, name)
            os.utime(runs_folder(tmp_path) / name / "run.json", (now - age, now - age))
        with holding(runs_folder(tmp_path) / "going-on"):
            judged = {one.run.id: (one.run, one.keep) for one in judge_runs(tmp_path, older_than=50, now=now)}
            assert {name: keep for name, (_, keep) in judged.items()} == {
                "old": "",
                "going-on": "keep: it is running",
                "young": "keep: it is not that old",
            }
            assert remove_run(tmp_path, judged["old"][0]) == "removed"
            # It was resumed after it had been judged.
            assert remove_run(tmp_path, judged["going-on"][0]) == "keep: it is running"
        assert sorted(one.name for one in runs_folder(tmp_path).iterdir()) == ["going-on", "young"]

    def test_chosen_runs_are_removed_by_their_beginnings_unless_one_is_running(self, tmp_path: Path) -> None:
        a_run(tmp_path, "20260101-one", workflow_id="abc1")
        a_run(tmp_path, "20260102-two", workflow_id="abd2")
        (runs_folder(tmp_path) / "20260101-one" / "run.log").write_text("x" * 5000)
        one, two = chosen_runs(tmp_path, ["20260101", "abd", "20260102-two"])
        assert (one.run.id, two.run.id) == ("20260101-one", "20260102-two")
        assert one.bytes > 5000 > two.bytes
        with pytest.raises(
            RuntimeConfigError,
            match=r"no run 'nobody' below .* that `perago run` or `perago map` has started",
        ):
            chosen_runs(tmp_path, ["20260101", "nobody"])
        with (
            holding(runs_folder(tmp_path) / "20260102-two"),
            pytest.raises(RuntimeConfigError, match="run 20260102-two is running: stop it first"),
        ):
            chosen_runs(tmp_path, ["20260101", "20260102"])
