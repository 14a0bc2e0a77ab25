"""The lakeFS adapter beyond the contract: exact refs, outcomes, fence levels, few calls."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perago.errors import HeadMoved, LakeError, LakeForbidden, LakeNotFound, LakeRefused, LandedElsewhere
from perago.lake.base import Download, FenceLevel, Merge
from perago.lake.lakefs.errors import FENCE_MARK
from perago.lake.lakefs.fence import FENCE_PATH, FENCE_TEXT, Fence
from perago.lake.lakefs.fence_probe import FENCE_KEY
from perago.lake.lakefs.lake import LakeFSLake
from tests.conftest import LakefsServer
from tests.support.faults.proxy import Fault, Way, fault_proxy
from tests.support.servers.lakefs import OpenLakeFS, lakefs_lake
from tests.support.worlds.lake_work import Work, at_once


def fenced(work: Work) -> str:
    """A main that carries the fence; returns its head."""
    return Fence(work.lake).install(work.repository, "main").head


class TestRefs:
    def test_a_tag_is_not_taken_for_a_branch(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        commit = lakefs_work.commit("main", {"a": b"1"})
        lakefs.create_tag(lakefs_work.repository, "same-name", commit)
        with pytest.raises(LakeNotFound):
            lakefs.head(lakefs_work.repository, "same-name")
        assert lakefs.commit_at(lakefs_work.repository, "same-name").id == commit

    @pytest.mark.parametrize("ref", ["not a ref", "a/b", "ä", "", "main@{1}"])
    def test_a_ref_that_cannot_be_is_not_found(self, lakefs: LakeFSLake, lakefs_work: Work, ref: str) -> None:
        with pytest.raises(LakeNotFound):
            lakefs.commit_at(lakefs_work.repository, ref)

    def test_a_head_takes_one_call(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        with fault_proxy(lakefs_server.url) as proxy:
            lake = open_lakefs(proxy.url)
            lake.head(lakefs_work.repository, "main")
            assert len(proxy.seen) == 1

    def test_a_log_longer_than_a_page_is_complete(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        made = [lakefs_work.commit("main", {"a": b"%d" % n}) for n in range(3)]
        ids = [commit.id for commit in lakefs.log(lakefs_work.repository, "main", 5000)]
        assert ids[:3] == made[::-1]
        assert len(ids) == 4

    def test_wrong_keys_are_forbidden_and_not_in_the_text(
        self, lakefs_server: LakefsServer, lakefs_work: Work, tmp_path: Path
    ) -> None:
        wrong = replace(lakefs_server, secret_access_key="a-wrong-secret")
        with lakefs_lake(wrong, tmp_path / "other", cache_bytes=0) as lake:
            for call in (
                lambda: lake.head(lakefs_work.repository, "main"),
                lambda: list(lake.read(lakefs_work.repository, "main", "a")),
            ):
                with pytest.raises(LakeForbidden) as caught:
                    call()
                assert "a-wrong-secret" not in str(caught.value)


class TestOutcomes:
    def test_a_protected_branch_forbids_a_relocation_and_allows_a_merge(
        self, lakefs_server: LakefsServer, lakefs: LakeFSLake, lakefs_work: Work
    ) -> None:
        base = lakefs_work.commit("main", {"a": b"1"})
        lakefs_work.stage("side", base, {"a": b"2"})
        protect(lakefs_server, lakefs_work, "main")
        with pytest.raises(LakeForbidden):
            lakefs.relocate(lakefs_work.repository, "main", "side", base, 60)
        assert lakefs_work.head() == base
        made = lakefs_work.merge("side", base)
        assert lakefs_work.head() == made

    def test_uploads_to_a_protected_branch_are_forbidden(
        self, lakefs_server: LakefsServer, lakefs: LakeFSLake, lakefs_work: Work
    ) -> None:
        lakefs_work.commit("main", {"a": b"1"})
        protect(lakefs_server, lakefs_work, "main")
        with pytest.raises(LakeForbidden):
            lakefs_work.put("main", {"b": b"1"})
        with pytest.raises(LakeForbidden):
            lakefs.delete(lakefs_work.repository, "main", ["a"])

    def test_a_conflict_means_that_the_head_moved(self, lakefs_work: Work) -> None:
        base = lakefs_work.commit("main", {"a": b"1"})
        staged = lakefs_work.stage("side", base, {"a": b"2"})
        lakefs_work.commit("main", {"a": b"3"})
        # The expected head is right, the source is not: only the server can see it.
        with pytest.raises(HeadMoved):
            lakefs_work.merge("side", lakefs_work.head())
        assert lakefs_work.head("side") == staged

    def test_the_expected_head_is_written_into_the_merge_commit(
        self, lakefs: LakeFSLake, lakefs_work: Work
    ) -> None:
        base = lakefs_work.commit("main", {"a": b"1"})
        lakefs_work.stage("side", base, {"a": b"2"})
        lakefs_work.merge("side", base)
        assert lakefs.head(lakefs_work.repository, "main").metadata["perago.expected_head"] == base


class TestFence:
    def test_a_commit_without_the_exact_file_is_soft(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        repository = lakefs_work.repository
        assert lakefs.fence_level(repository, "main") == "soft"
        almost = lakefs_work.commit("main", {FENCE_PATH: FENCE_TEXT.replace("~=", "==").encode()})
        assert lakefs.fence_level(repository, almost) == "soft"
        exact = lakefs_work.commit("main", {FENCE_PATH: FENCE_TEXT.encode()})
        assert lakefs.fence_level(repository, exact) == "hard"
        assert lakefs.fence_level(repository, "main") == "hard"
        assert lakefs.fence_level(repository, almost) == "soft"

    def test_a_level_is_read_once_for_each_commit_and_the_server_is_proven_once(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        head = fenced(lakefs_work)
        with fault_proxy(lakefs_server.url) as proxy:
            lake = open_lakefs(proxy.url)
            assert {lake.fence_level(lakefs_work.repository, head) for _ in range(5)} == {"hard"}
            assert proxy.count("_lakefs_actions") == 1
            assert len(proxy.seen) == 4

    @pytest.mark.parametrize("level", ["hard", "soft"])
    def test_a_merge_of_a_fenced_commit_onto_its_base_is_known_to_carry_the_fence(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, level: FenceLevel
    ) -> None:
        base = fenced(lakefs_work)
        lakefs_work.stage("side", base, {"a": b"1"})
        with fault_proxy(lakefs_server.url) as proxy:
            lake = open_lakefs(proxy.url)
            made = lake.merge(
                lakefs_work.repository, Merge("side", "main", base, "m", {}, 30, level=level, base=base)
            )
            assert lake.fence_level(lakefs_work.repository, made) == "hard"
            # Known or read, the server has to be proven as ever; what a soft merge has made is read.
            assert proxy.count("POST .*/merge/perago-fence-") == 1
            assert proxy.count("_lakefs_actions") == (level == "soft")

    @pytest.mark.parametrize("where", ["side", "main"])
    def test_a_merge_after_the_fence_file_was_deleted_is_soft(
        self, lakefs: LakeFSLake, lakefs_work: Work, where: str
    ) -> None:
        repository, base = lakefs_work.repository, fenced(lakefs_work)
        lakefs_work.stage("side", base, {"a": b"1"})
        lakefs_work.edit(where, {FENCE_PATH: None})
        head, level = lakefs_work.head(), lakefs.fence_level(repository, "side")
        made = lakefs.merge(repository, Merge("side", "main", head, "m", {}, 30, level=level, base=base))
        assert lakefs.fence_level(repository, made) == "soft"

    def test_a_merge_that_should_have_been_compared_and_landed_elsewhere_says_so_and_the_fence_is_proven_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        repository, base = lakefs_work.repository, lakefs_work.commit("main", {"a": b"1"})
        lakefs_work.stage("side", base, {"b": b"2"})
        theirs = fenced(lakefs_work)
        with fault_proxy(lakefs_server.url) as proxy:
            lake = open_lakefs(proxy.url)
            assert lake.fence_level(repository, theirs) == "hard"
            with pytest.raises(
                LandedElsewhere, match=f"landed on {theirs}, not on the expected head {base}"
            ) as raised:
                # The source has no fence, so the server compares nothing, whatever the caller believes.
                lake.merge(repository, Merge("side", "main", base, "m", {}, 30, level="hard", base=base))
            assert raised.value.commit == lakefs_work.head()
            assert lake.fence_level(repository, theirs) == "hard"
            assert proxy.count("POST .*/merge/perago-fence-") == 2

    @pytest.mark.parametrize("way", ["cut before", "close"])
    def test_the_fence_is_proven_again_after_a_broken_connection(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, way: Way
    ) -> None:
        """A server whose actions are switched off is another process: its connections have broken."""
        repository, head = lakefs_work.repository, fenced(lakefs_work)
        with fault_proxy(lakefs_server.url) as proxy:
            lake = open_lakefs(proxy.url)
            assert lake.fence_level(repository, head) == "hard"
            proxy.faults.append(Fault(way, "GET .*/refs/main.*/commits"))
            # The second reading meets the connection that was closed behind the first.
            assert {lake.head(repository, "main").id for _ in range(2)} == {head}
            assert [lake.fence_level(repository, head) for _ in range(3)] == ["hard"] * 3
            assert proxy.count("POST .*/merge/perago-fence-") == 2

    def test_an_install_is_signed_as_the_fences_own(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        before = lakefs_work.head()
        done = Fence(lakefs).install(lakefs_work.repository, "main")
        head = lakefs.head(lakefs_work.repository, "main")
        assert (head.id, head.parents) == (done.head, (before,))
        assert head.metadata["perago.logical_task_key"] == FENCE_KEY
        assert lakefs_work.contents("main") == {FENCE_PATH: FENCE_TEXT.encode()}
        assert lakefs.branches(lakefs_work.repository, "perago-fence") == []

    def test_a_second_install_changes_nothing(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        head = fenced(lakefs_work)
        again = Fence(lakefs).install(lakefs_work.repository, "main")
        assert (again.head, again.changed) == (head, False)

    def test_an_install_works_on_a_protected_branch(
        self, lakefs_server: LakefsServer, lakefs: LakeFSLake, lakefs_work: Work
    ) -> None:
        protect(lakefs_server, lakefs_work, "main")
        assert Fence(lakefs).install(lakefs_work.repository, "main").changed
        assert lakefs.fence_level(lakefs_work.repository, "main") == "hard"

    def test_a_removed_fence_is_gone(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        fenced(lakefs_work)
        assert Fence(lakefs).remove(lakefs_work.repository, "main").changed
        assert lakefs.fence_level(lakefs_work.repository, "main") == "soft"
        assert not Fence(lakefs).remove(lakefs_work.repository, "main").changed

    def test_the_proof_is_a_refusal_in_the_servers_words_and_leaves_nothing(
        self, lakefs: LakeFSLake, lakefs_work: Work
    ) -> None:
        head = fenced(lakefs_work)
        proof = Fence(lakefs).prove(lakefs_work.repository, "main")
        assert FENCE_MARK in proof.refused
        assert "412" in proof.refused
        assert head in proof.refused
        assert lakefs_work.head() == head
        assert lakefs.branches(lakefs_work.repository, "perago-fence") == []

    def test_nothing_is_proven_without_a_fence(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        with pytest.raises(LakeRefused, match="perago fence install"):
            Fence(lakefs).prove(lakefs_work.repository, "main")

    def test_of_eight_racing_merges_one_lands_and_the_server_lists_the_others_as_refused(
        self, lakefs_server: LakefsServer, lakefs: LakeFSLake, lakefs_work: Work
    ) -> None:
        repository = lakefs_work.repository
        base = fenced(lakefs_work)
        for number in range(8):
            staged = lakefs_work.stage(f"side-{number}", base, {f"by-{number}": b"x"})
            assert lakefs.fence_level(repository, staged) == "hard"
        ends = at_once(8, lambda number: lakefs_work.merge(f"side-{number}", base))
        [landed] = [end for end in ends if isinstance(end, str)]
        losers = [end for end in ends if not isinstance(end, str)]
        assert all(isinstance(end, HeadMoved) and FENCE_MARK in str(end) for end in losers)
        assert lakefs.head(repository, "main").id == landed
        assert lakefs.head(repository, "main").parents == (base,)
        runs = lakefs_server.call("GET", f"/repositories/{repository}/actions/runs?branch=main&amount=100")
        failed = [run for run in runs["results"] if run["status"] == "failed"]
        assert len(failed) >= 7

    def test_a_merge_that_names_no_head_passes(self, lakefs_server: LakefsServer, lakefs_work: Work) -> None:
        base = fenced(lakefs_work)
        lakefs_work.stage("side", base, {"a": b"1"})
        moved = lakefs_work.commit("main", {"b": b"1"})
        path = f"/repositories/{lakefs_work.repository}/refs/side/merge/main"
        lakefs_server.call("POST", path, {"message": "by hand"})
        assert lakefs_work.head() != moved
        assert set(lakefs_work.paths("main")) == {"a", "b", FENCE_PATH}


class TestListing:
    def test_a_commits_listing_is_asked_for_once(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        commit = lakefs_work.commit("main", {f"x/{n}": b"1" for n in range(5)})
        with fault_proxy(lakefs_server.url) as proxy:
            lists = [
                list(open_lakefs(proxy.url).list(lakefs_work.repository, commit, "x/")) for _ in range(3)
            ]
            assert len(proxy.seen) == 1
        assert lists[0] == lists[1] == lists[2]
        assert [entry.path for entry in lists[0]] == [f"x/{n}" for n in range(5)]

    def test_a_branchs_listing_is_asked_for_each_time(self, lakefs_work: Work) -> None:
        lakefs_work.commit("main", {"a": b"1"})
        assert lakefs_work.paths("main") == ["a"]
        lakefs_work.put("main", {"b": b"1"})
        assert lakefs_work.paths("main") == ["a", "b"]

    def test_a_listing_that_was_not_taken_to_its_end_is_not_kept(
        self, lakefs: LakeFSLake, lakefs_work: Work
    ) -> None:
        commit = lakefs_work.commit("main", {"a": b"1", "b": b"1", "c": b"1"})
        entries = lakefs.list(lakefs_work.repository, commit, "")
        assert next(iter(entries)).path == "a"
        del entries
        assert lakefs_work.paths(commit) == ["a", "b", "c"]


class TestFork:
    def test_a_forked_child_makes_its_own_connections(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        head = lakefs_work.head()
        assert in_a_fork(lambda: lakefs.head(lakefs_work.repository, "main").id) == head

    def test_bytes_in_a_child_of_a_process_that_moved_some_are_refused_and_not_waited_for(
        self, lakefs: LakeFSLake, lakefs_work: Work, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {"a": b"1"})
        [entry] = lakefs.list(lakefs_work.repository, commit, "")

        def download() -> str:
            try:
                lakefs.download(lakefs_work.repository, commit, [Download(entry, tmp_path / "out")])
            except LakeError as error:
                return str(error)
            return "moved"

        assert "spawn" in in_a_fork(download)


def in_a_fork(work: object) -> str:
    """Return the result of `work` in a forked child, within seconds."""
    import signal

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os.write(write, str(work()).encode())  # type: ignore[operator]
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


def protect(server: LakefsServer, work: Work, branch: str) -> None:
    """Protect a branch, and wait until the server has seen its own rule."""
    server.call("PUT", f"/repositories/{work.repository}/settings/branch_protection", [{"pattern": branch}])
    for _ in range(300):
        # Deleting what is not there changes nothing, whenever the rule begins to hold.
        try:
            work.lake.delete(work.repository, branch, ["perago-probe"])
        except LakeForbidden:
            return
        time.sleep(0.1)
    pytest.fail("the server did not protect the branch within 30 s")
