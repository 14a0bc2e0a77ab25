"""Branches as commands, on both lakes: listing, deleting, merging, and restoring an old state."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3
from typer.testing import CliRunner

from perago.backend import Embedded, Real
from perago.cli import app
from perago.lake.lakefs.fence import FENCE_PATH
from perago.settings import load_settings
from tests.conftest import LakefsServer
from tests.support.worlds.cli_lake import CommandLake

Folder = Callable[..., str]
Put = Callable[..., str]


@pytest.fixture
def put(lake: CommandLake, tmp_path: Path) -> Put:
    """Put exactly these files onto a branch, and return the commit."""

    def put(branch: str, *, delete: bool = False, **files: str) -> str:
        at = tmp_path / f"in-{len(list(tmp_path.iterdir()))}"
        for path, text in files.items():
            file = at / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        more = ["--delete"] if delete else []
        return str(lake.written("put", f"{lake.repository}@{branch}", str(at), *more)["commit"])

    return put


def content(lake: CommandLake, path: str, ref: str = "main") -> str:
    done = CliRunner().invoke(app, ["cat", f"{lake.repository}@{ref}", path, *lake.looking])
    assert done.exit_code == 0, done.output
    return done.stdout


def internal_branches(lake: CommandLake) -> list[str]:
    rows = lake.run_here("branch", lake.repository, "--all")
    return [row["branch"] for row in rows if row["branch"].startswith("perago-")]


class TestListing:
    def test_branches_are_listed_with_head_time_and_author_main_first(
        self, lake: CommandLake, put: Put
    ) -> None:
        head = put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        lake.written("branch", lake.repository, "a-release")

        rows = lake.run_here("branch", lake.repository)

        assert [row["branch"] for row in rows] == ["main", "a-release", "dev"]
        assert {row["commit"] for row in rows} == {head}
        assert {row["by"] for row in rows} == {"perago put"}
        assert all(row["created"] > 1e9 for row in rows)
        shown = CliRunner().invoke(app, ["branch", lake.repository, *lake.looking]).stdout.splitlines()
        assert re.fullmatch(rf"dev +{head}  [\d-]{{10}} [\d:]{{8}}  perago put: put of .*", shown[2])

    def test_internal_branches_are_listed_only_with_all(self, lake: CommandLake, put: Put) -> None:
        assert internal_branches(lake) == []
        name = "perago-put-1700000000-0123456789ab"
        _create_directly(lake, name)
        assert name not in [row["branch"] for row in lake.run_here("branch", lake.repository)]
        assert internal_branches(lake) == [name]

    def test_a_repository_that_does_not_exist_is_named(self, lake: CommandLake) -> None:
        done = CliRunner().invoke(app, ["branch", f"{lake.repository}x", *lake.looking])
        assert done.exit_code == 1
        assert f"there is no repository '{lake.repository}x'" in done.stderr
        assert "did you mean" in done.stderr


def _create_directly(lake: CommandLake, name: str) -> None:
    """Create a branch that the command line refuses to create."""
    remote = "--remote" in lake.looking
    root = None if remote else Path(lake.looking[1])
    settings = load_settings(os.environ, root=root, remote=remote)
    opened = (Real if remote else Embedded)(settings).open_lake()
    opened.create_branch(lake.repository, name, "main")
    opened.close()


class TestDeleting:
    def test_a_merged_branch_goes_without_a_warning(self, lake: CommandLake, put: Put) -> None:
        put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2")
        lake.written("merge", lake.repository, "dev", "main")

        done = lake.write("branch", lake.repository, "dev", "--delete", "--yes")

        assert done.exit_code == 0, done.output
        assert "warning" not in done.stderr
        assert [row["branch"] for row in lake.run_here("branch", lake.repository)] == ["main"]

    def test_commits_that_are_nowhere_else_are_named_and_can_be_brought_back(
        self, lake: CommandLake, put: Put
    ) -> None:
        put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2")
        lost = put("dev", a="3")

        done = lake.write("branch", lake.repository, "dev", "--delete", "--yes")

        assert done.exit_code == 0, done.output
        assert f"warning: 2 commits of dev are on no other branch, the newest {lost}" in done.stderr
        again = done.stdout.split("`")[1]
        agreed = [one for one in lake.writing if one == "--yes"]
        assert CliRunner().invoke(app, [*shlex.split(again)[1:], *agreed]).exit_code == 0
        assert content(lake, "a", "dev") == "3"

    def test_a_tag_or_another_branch_keeps_commits(self, lake: CommandLake, put: Put) -> None:
        put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2")
        lake.written("branch", lake.repository, "keeps", "dev")
        mine = put("dev", a="3")

        done = lake.write("branch", lake.repository, "dev", "--delete", "--yes", "--json")

        assert json.loads(done.stdout)["lost"] == [mine]
        assert f"warning: 1 commit of dev is on no other branch, the newest {mine}" in done.stderr
        assert "` keeps it\n" in done.stderr

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("main", "default branch"),
            ("perago-staging-x", "perago sweep"),
            ("mian", "did you mean 'main'?"),
        ],
    )
    def test_what_must_stay_is_refused(self, lake: CommandLake, name: str, says: str) -> None:
        assert says in lake.refusal("branch", lake.repository, name, "--delete", "--yes")

    def test_without_a_terminal_it_needs_a_yes_even_on_the_embedded_lake(
        self, lake: CommandLake, put: Put
    ) -> None:
        lake.written("branch", lake.repository, "dev")
        options = [one for one in lake.writing if one != "--yes"]
        done = CliRunner().invoke(app, ["branch", lake.repository, "dev", "--delete", *options])
        assert done.exit_code == 2
        assert "add --yes" in done.stderr
        assert len(lake.run_here("branch", lake.repository)) == 2


class TestMerging:
    def test_a_branch_is_merged_again_and_again(self, lake: CommandLake, put: Put) -> None:
        put("main", a="1", b="1", gone="1")
        lake.written("branch", lake.repository, "dev")
        first = put("dev", delete=True, a="2", b="1", new="2")
        before = put("main", c="3")

        merged = lake.written("merge", lake.repository, "dev", "main")
        again = lake.written("merge", lake.repository, "dev", "main")
        put("dev", a="3")
        later = lake.written("merge", lake.repository, "dev", "main")

        assert (merged["changed"], again["changed"], later["changed"]) == (True, False, True)
        assert again["commit"] == merged["commit"]
        log = lake.run_here("history", lake.repository)
        assert [commit["id"] for commit in log[:3]] == [later["commit"], merged["commit"], before]
        assert log[1]["parents"][0] == before
        assert log[1]["metadata"]["perago.logical_task_key"] == "perago-merge", "`replace` never covers it"
        assert (
            log[1]["metadata"]["perago.merged_branch"],
            log[1]["metadata"]["perago.merged_commit"],
        ) == ("dev", first)
        assert content(lake, "a") == "3"
        assert {"a", "b", "c", "new"} <= set(lake.files())
        assert "gone" not in lake.files()
        assert internal_branches(lake) == []

    def test_merging_what_is_merged_says_so(self, lake: CommandLake, put: Put) -> None:
        put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        done = lake.write("merge", lake.repository, "dev", "main")
        assert done.exit_code == 0
        assert "nothing to merge: " in done.stdout

    def test_a_conflict_names_the_paths_and_its_remedy_works(self, lake: CommandLake, put: Put) -> None:
        put("main", a="1", b="1", same="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2", b="2", same="2")
        head = put("main", a="3", same="2")

        refused = lake.refusal("merge", lake.repository, "dev", "main")

        assert "both have changed 'a' since they parted; nothing was merged" in refused
        assert lake.run_here("history", lake.repository)[0]["id"] == head
        assert internal_branches(lake) == []
        remedy = shlex.split(refused.split("`")[1])[1:]
        agreed = [one for one in lake.writing if one == "--yes"]
        assert CliRunner().invoke(app, [*remedy, *agreed]).exit_code == 0
        assert lake.written("merge", lake.repository, "dev", "main")["changed"] is True
        assert (content(lake, "a"), content(lake, "b")) == ("2", "2")

    def test_a_merge_that_changes_no_file_is_recorded_so_that_the_next_one_does_not_conflict(
        self, lake: CommandLake, put: Put
    ) -> None:
        put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2")
        put("main", a="2")
        same = lake.write("merge", lake.repository, "dev", "main")
        put("dev", a="3")
        lake.written("merge", lake.repository, "dev", "main")

        assert "dev was merged, no file differs" in same.stdout
        assert content(lake, "a") == "3"

    def test_branches_merge_in_both_directions(self, lake: CommandLake, put: Put) -> None:
        put("main", a="1", b="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2")
        put("main", b="2")
        lake.written("merge", lake.repository, "main", "dev")
        assert content(lake, "b", "dev") == "2"
        put("dev", b="3")
        lake.written("merge", lake.repository, "dev", "main")
        assert (content(lake, "a"), content(lake, "b")) == ("2", "3")

    @pytest.mark.parametrize(
        ("source", "into", "says"),
        [
            ("dve", "main", "did you mean 'dev'?"),
            ("dev", "mian", "did you mean 'main'?"),
            ("dev", "perago-staging-x", "one of Perago's own branches"),
        ],
    )
    def test_wrong_names_are_refused(
        self, lake: CommandLake, put: Put, source: str, into: str, says: str
    ) -> None:
        lake.written("branch", lake.repository, "dev")
        assert says in lake.refusal("merge", lake.repository, source, into)


class TestRestoring:
    def test_an_old_state_of_some_paths_comes_back_as_a_new_commit(self, lake: CommandLake, put: Put) -> None:
        old = put("main", t__a="1", t__b="1", t2="1", other="1")
        head = put("main", delete=True, t__a="2", t__new="2", t2="2", other="2")

        done = lake.written("restore", lake.repository, old, "t")
        again = lake.write("restore", lake.repository, old, "/t/")

        assert (sorted(done["restored"]), done["removed"]) == (["t/a", "t/b"], ["t/new"])
        assert (content(lake, "t/a"), content(lake, "t2"), content(lake, "other")) == ("1", "2", "2")
        newest = lake.run_here("history", lake.repository)[0]
        assert (newest["id"], newest["parents"]) == (done["commit"], [head])
        assert newest["metadata"]["perago.logical_task_key"] == "perago-restore"
        assert newest["metadata"]["perago.restored_commit"] == old
        assert "nothing to restore: " in again.stdout
        assert lake.run_here("history", lake.repository)[0]["id"] == done["commit"]
        assert internal_branches(lake) == []

    def test_everything_comes_back_on_the_branch_that_is_named(self, lake: CommandLake, put: Put) -> None:
        old = put("main", a="1", b="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2", new="2")
        before = set(lake.files(old))

        lake.written("restore", lake.repository, old, "--branch", "dev")

        assert set(lake.files("dev")) == before
        assert content(lake, "a", "dev") == "1"

    def test_slashes_around_a_path_do_no_harm(self, lake: CommandLake, put: Put) -> None:
        old = put("main", t__a="1", b="1")
        put("main", t__a="2", b="2")

        done = lake.written("restore", lake.repository, old, "/t/a/", "//b/")

        assert done["restored"] == ["t/a", "b"]

    def test_a_path_that_is_nowhere_is_refused_and_names_what_is_there(
        self, lake: CommandLake, put: Put
    ) -> None:
        put("main", plays="1")
        says = lake.refusal("restore", lake.repository, "main", "palys")
        assert "there is no object 'palys'" in says
        assert "did you mean 'plays'?" in says

    def test_a_file_is_not_restored_below_another_file(self, lake: CommandLake, put: Put) -> None:
        old = put("main", a__b="1")
        put("main", delete=True, a="2")
        says = lake.refusal("restore", lake.repository, old, "a/b")
        assert "'a' is a file on the branch" in says
        lake.written("restore", lake.repository, old, "a")
        assert content(lake, "a/b") == "1"

    def test_actions_are_refused(self, lake: CommandLake) -> None:
        assert "lakeFS's actions" in lake.refusal(
            "restore", lake.repository, "main", "_lakefs_actions/perago-fence.yaml"
        )


@pytest.mark.servers
class TestTheFence:
    """On lakeFS, which reads actions from the source of a merge."""

    @pytest.fixture
    def lake(
        self, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path, monkeypatch: Any
    ) -> CommandLake:
        del lakefs_server
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PERAGO_ROOT", str(tmp_path / "root"))
        return CommandLake(lakefs_repository, ("--remote", "--yes"), ("--remote",))

    def _fence(self, lake: CommandLake, command: str, branch: str) -> None:
        done = CliRunner().invoke(app, ["fence", command, lake.repository, branch, "--yes"])
        assert done.exit_code == 0, done.output

    def test_a_branch_without_the_fence_is_merged_through_the_targets_fence(
        self, lake: CommandLake, put: Put
    ) -> None:
        put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        put("dev", a="2")
        self._fence(lake, "install", "main")

        lake.written("merge", lake.repository, "dev", "main")

        head = lake.run_here("history", lake.repository)[0]
        assert head["metadata"]["perago.fence"] == "hard"
        assert FENCE_PATH in lake.files()

    def test_a_branch_that_removed_the_fence_leaves_it_on_the_target(
        self, lake: CommandLake, put: Put
    ) -> None:
        put("main", a="1")
        self._fence(lake, "install", "main")
        lake.written("branch", lake.repository, "dev")
        self._fence(lake, "remove", "dev")
        put("dev", a="2")

        done = lake.written("merge", lake.repository, "dev", "main")

        assert done["left_out"] == [FENCE_PATH]
        assert lake.run_here("history", lake.repository)[0]["metadata"]["perago.fence"] == "hard"
        assert FENCE_PATH in lake.files()
        assert content(lake, "a") == "2"
        assert lake.written("merge", lake.repository, "dev", "main")["changed"] is False

    def test_a_restore_to_before_the_fence_keeps_the_fence(self, lake: CommandLake, put: Put) -> None:
        old = put("main", a="1")
        self._fence(lake, "install", "main")
        put("main", a="2")

        lake.written("restore", lake.repository, old)

        head = lake.run_here("history", lake.repository)[0]
        assert head["metadata"]["perago.fence"] == "hard"
        assert FENCE_PATH in lake.files()
        assert content(lake, "a") == "1"

    def test_a_gate_of_the_target_refuses_the_merge_of_a_branch_that_lacks_it(
        self, lake: CommandLake, put: Put, lakefs_server: LakefsServer
    ) -> None:
        put("main", a="1")
        lake.written("branch", lake.repository, "dev")
        head = put("dev", a="2")
        _put_object(lakefs_server, lake.repository, "_lakefs_actions/gate.yaml", GATE)

        done = lake.write("merge", lake.repository, "dev", "main")

        assert done.exit_code == 1
        assert "not without an audit" in done.stderr
        assert lake.run_here("history", lake.repository)[0]["id"] != head
        assert content(lake, "a") == "1"
        assert internal_branches(lake) == []


GATE = """\
name: gate
on:
  pre-merge:
    branches: [main]
hooks:
  - id: audit
    type: lua
    properties:
      script: error("not without an audit")
"""


def _put_object(server: LakefsServer, repository: str, path: str, text: str) -> None:
    """Commit an object to main past Perago, which refuses actions."""
    keys = f"{server.access_key_id}:{server.secret_access_key}"
    headers = {**urllib3.make_headers(basic_auth=keys), "Content-Type": "application/octet-stream"}
    url = f"{server.url.rstrip('/')}/api/v1/repositories/{repository}/branches/main/objects?path={path}"
    assert urllib3.request("POST", url, body=text.encode(), headers=headers).status == 201
    server.call("POST", f"/repositories/{repository}/branches/main/commits", {"message": "a gate"})


def test_a_json_list_of_branches_is_json(lake: CommandLake) -> None:
    done = CliRunner().invoke(app, ["branch", lake.repository, "--json", *lake.looking])
    assert [row["branch"] for row in json.loads(done.stdout)] == ["main"]
