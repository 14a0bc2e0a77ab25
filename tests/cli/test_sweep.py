"""`perago sweep` on an embedded root, and on the real servers."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app
from perago.lake.base import Lake
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Assignment, Orchestrator
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.attempt import Attempt
from perago.protocol.names import claim_branch_name, replaced_tag_name, staging_branch_name
from perago.protocol.outcome import Outcome
from tests.conftest import ConductorServer, LakefsServer
from tests.support.servers.lakefs import lakefs_lake

NAMES = (
    "LAKECTL_SERVER_ENDPOINT_URL",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
    "CONDUCTOR_SERVER_URL",
)


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["sweep", *arguments, "--yes"])
    said = (line for line in done.stderr.splitlines(keepends=True) if not line.startswith("lake: "))
    return done.exit_code, done.stdout + "".join(said)


def actions(*arguments: str) -> dict[str, str]:
    """Return what the command reports for each name."""
    code, text = run("--json", *arguments)
    assert code == 0, text
    return {row["name"]: row["action"] for row in json.loads(text)["leftovers"]}


def on_lakefs(*arguments: str) -> dict[str, str]:
    return actions("--remote", *arguments)


def an_attempt(orchestrator: Orchestrator) -> Assignment:
    """A workflow of one step, begun."""
    name = f"sweep_{uuid.uuid4().hex[:12]}"
    taskdef = {"name": name, "ownerEmail": "tests@example.com", "retryCount": 0, "responseTimeoutSeconds": 60}
    step = {"name": name, "taskReferenceName": "only", "type": "SIMPLE"}
    orchestrator.register_taskdefs([{**taskdef, "timeoutSeconds": 0, "timeoutPolicy": "TIME_OUT_WF"}])
    orchestrator.register_workflow(
        {"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "tests@example.com", "tasks": [step]}
    )
    orchestrator.start_workflow(name, input={})
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if polled := orchestrator.poll(name, worker_id="w", count=1, wait_seconds=1):
            return polled[0]
    raise AssertionError("no task came")


def branches(lake: Lake, repository: str, attempt: Attempt) -> set[str]:
    """A staging branch and the claim, hidden, as an execution makes them."""
    names = {staging_branch_name(attempt, "e1"), claim_branch_name(attempt, "main")}
    for name in names:
        lake.create_branch(repository, name, "main")
    return names


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An embedded root with a repository `songs`; the current folder's .perago, so that it is found by default."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PERAGO_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".perago"
    with closing(LocalLake(path / "lake")) as lake:
        lake.create_repository("songs")
    return path


class TestEmbedded:
    def leave(self, root: Path, state: Path, *, over: bool) -> set[str]:
        """Branches of an attempt that an orchestrator of the root knows."""
        state.parent.mkdir(parents=True, exist_ok=True)
        with closing(LocalOrchestrator(state)) as orchestrator, closing(LocalLake(root / "lake")) as lake:
            attempt = an_attempt(orchestrator).attempt
            if over:
                orchestrator.complete(attempt, Outcome("COMPLETED", output={}), worker_id="w")
            return branches(lake, "songs", attempt)

    def left(self, root: Path) -> set[str]:
        with closing(LocalLake(root / "lake")) as lake:
            return {branch.name for branch in lake.branches("songs", "perago-")}

    def test_the_worker_and_every_run_are_asked(self, root: Path) -> None:
        running = self.leave(root, root / "orchestrator.db", over=False)
        running |= self.leave(root, root / "runs" / "one" / "orchestrator.db", over=False)
        over = self.leave(root, root / "orchestrator.db", over=True)
        over |= self.leave(root, root / "runs" / "two" / "orchestrator.db", over=True)
        assert actions("--root", str(root)) == dict.fromkeys(running, "keep") | dict.fromkeys(over, "removed")
        assert self.left(root) == running

    def test_a_dry_run_removes_nothing(self, root: Path) -> None:
        over = self.leave(root, root / "orchestrator.db", over=True)
        assert actions("--dry-run") == dict.fromkeys(over, "would remove")
        assert self.left(root) == over
        code, text = run("--dry-run")
        assert code == 0
        assert text.splitlines()[-1] == "2 would be removed, 0 kept"

    def test_sweep_reports_what_it_did_and_why(self, root: Path) -> None:
        over = self.leave(root, root / "orchestrator.db", over=True)
        running = self.leave(root, root / "orchestrator.db", over=False)
        code, text = run("songs")
        lines = text.splitlines()
        assert code == 0
        assert lines.pop() == "2 removed, 2 kept"
        assert len(lines) == 4
        for name in over:
            assert any(
                line.startswith(f"removed: songs/{name} (task ") and "COMPLETED" in line for line in lines
            )
        for name in running:
            assert any(line.startswith(f"keep: songs/{name} (") and "IN_PROGRESS" in line for line in lines)
        assert run() == (
            0,
            "\n".join(line for line in lines if line.startswith("keep")) + "\n0 removed, 2 kept\n",
        )

    def test_a_root_without_an_orchestrator_is_not_given_one(self, root: Path) -> None:
        assert run() == (0, "0 removed, 0 kept\n")
        assert not (root / "orchestrator.db").exists()

    def test_json_names_everything_a_script_needs(self, root: Path) -> None:
        self.leave(root, root / "orchestrator.db", over=True)
        said = json.loads(run("--json", "--dry-run")[1])
        assert said["dry_run"] is True
        for row in said["leftovers"]:
            assert row.keys() == {"repository", "kind", "name", "commit", "task_id", "action", "why"}
            assert row["task_id"] in row["name"]
        assert {row["kind"] for row in said["leftovers"]} == {"staging", "claim"}

    def test_tags_are_removed_only_by_name_and_age(self, root: Path) -> None:
        attempt = Attempt("w", "11111111-2222-3333-4444-555555555555", "r", "t", 0, 0, 0)
        with closing(LocalLake(root / "lake")) as lake:
            head = lake.head("songs", "main").id
            tag = replaced_tag_name(attempt, head)
            lake.create_tag("songs", tag, head)
        assert actions("--older-than", "0s") == {}
        assert actions("--tags", "--older-than", "1h") == {tag: "keep"}
        assert actions("--tags", "--older-than", "0s") == {tag: "removed"}
        code, text = run("--tags")
        assert code == 2
        assert "--older-than" in text

    def test_an_error_is_reported(self, root: Path) -> None:
        code, text = run("no-such-repository")
        assert code == 1
        assert text.startswith("error: ")
        assert "no-such-repository" in text
        code, text = run("--older-than", "soon")
        assert code == 2
        assert "a duration such as" in text


class TestRealServers:
    @pytest.fixture
    def lake(
        self,
        lakefs_server: LakefsServer,
        conductor_server: ConductorServer,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> Iterator[Lake]:
        values = (lakefs_server.url, lakefs_server.access_key_id, lakefs_server.secret_access_key)
        for name, value in zip(NAMES, (*values, conductor_server.url), strict=True):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PERAGO_ROOT", str(tmp_path / "root"))
        with lakefs_lake(lakefs_server, tmp_path / "cache", cache_bytes=0) as lake:
            yield lake

    @pytest.fixture
    def conductor(self, conductor_server: ConductorServer) -> Iterator[Orchestrator]:
        from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator

        with closing(ConductorOrchestrator(conductor_server.url)) as orchestrator:
            yield orchestrator

    def test_conductor_decides_what_goes(
        self, lake: Lake, conductor: Orchestrator, lakefs_repository: str
    ) -> None:
        running, ended = an_attempt(conductor).attempt, an_attempt(conductor).attempt
        conductor.complete(ended, Outcome("COMPLETED", output={}), worker_id="w")
        kept, over = branches(lake, lakefs_repository, running), branches(lake, lakefs_repository, ended)
        wanted = dict.fromkeys(kept, "keep") | dict.fromkeys(over, "would remove")
        assert on_lakefs(lakefs_repository, "--dry-run", "--older-than", "0s") == wanted
        assert set(on_lakefs(lakefs_repository, "--older-than", "0s").values()) == {"keep", "removed"}
        assert {branch.name for branch in lake.branches(lakefs_repository, "perago-")} == kept
        conductor.complete(running, Outcome("FAILED_WITH_TERMINAL_ERROR", reason="x"), worker_id="w")
        assert on_lakefs(lakefs_repository) == dict.fromkeys(kept, "removed")
        assert lake.branches(lakefs_repository, "perago-") == []

    def test_branches_of_tasks_unknown_to_conductor_are_removed_by_age(
        self, lake: Lake, lakefs_repository: str
    ) -> None:
        task = str(uuid.uuid4())
        hour_ago = round((time.time() - 3600) * 1000)
        attempt = Attempt(str(uuid.uuid4()), task, "r", "t", 0, 0, 0, scheduled_time=hour_ago)
        claim = claim_branch_name(attempt, "main")
        lake.create_branch(lakefs_repository, claim, "main")
        assert on_lakefs(lakefs_repository, "--older-than", "2h") == {claim: "keep"}
        assert (
            "it goes when it is older than 2 hours, in "
            in run("--remote", lakefs_repository, "--older-than", "2h")[1]
        )
        assert on_lakefs(lakefs_repository, "--older-than", "30m") == {claim: "removed"}

    def test_without_a_repository_all_are_swept(
        self, lake: Lake, conductor: Orchestrator, lakefs_repository: str
    ) -> None:
        ended = an_attempt(conductor).attempt
        conductor.complete(ended, Outcome("COMPLETED", output={}), worker_id="w")
        over = branches(lake, lakefs_repository, ended)
        # Only a look: the server's other repositories are other tests'.
        assert dict.fromkeys(over, "would remove").items() <= on_lakefs("--dry-run").items()

    def test_a_conductor_that_cannot_be_reached_leaves_everything_as_it_is(
        self, lake: Lake, lakefs_repository: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempt = Attempt(str(uuid.uuid4()), str(uuid.uuid4()), "r", "t", 0, 0, 0)
        names = branches(lake, lakefs_repository, attempt)
        monkeypatch.setenv("CONDUCTOR_SERVER_URL", "http://127.0.0.1:1/api")
        code, text = run("--remote", lakefs_repository, "--older-than", "0s")
        assert code == 1
        assert "nothing was removed" in text
        assert {branch.name for branch in lake.branches(lakefs_repository, "perago-")} == names

    def test_lakefs_without_a_conductor_is_refused(
        self, lake: Lake, lakefs_repository: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CONDUCTOR_SERVER_URL")
        code, text = run("--remote", lakefs_repository)
        assert code == 1
        assert "CONDUCTOR_SERVER_URL" in text
