"""The adapter behind a proxy that cuts, refuses and stalls: what it repeats, what it settles, what it leaves open."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from perago.errors import HeadMoved, LakeConflict, LakeNotFound, LakeRefused, LakeUnavailable
from perago.lake.base import Download, Merge
from tests.conftest import LakefsServer
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.servers.lakefs import OpenLakeFS
from tests.support.worlds.lake_work import Work

MERGE = r"POST .*/refs/[^/]+/merge/"
COMMIT = r"POST .*/branches/[^/]+/commits"
RESET = r"PUT .*/hard_reset"
HEAD = r"GET .*/refs/main(@|%40)/commits"
TAG = r"POST .*/tags$"
MIB = 1024 * 1024
OBJECT = r"(GET|PUT) /test-[^/?]+/[^/?]+/"


class LongestDelays(random.Random):
    """Chance that always takes the longest delay."""

    def uniform(self, a: float, b: float) -> float:
        return b


def staged(work: Work) -> str:
    """A base on main, and a branch `side` with one commit more; returns the base."""
    base = work.commit("main", {"a": b"1"})
    work.stage("side", base, {"a": b"2"})
    return base


class TestMerge:
    def test_an_answer_lost_after_the_merge_is_unknown_and_is_not_sent_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        base = staged(lakefs_work)
        with fault_proxy(lakefs_server.url, Fault("cut after", MERGE)) as proxy:
            lake = open_lakefs(proxy.url)
            with pytest.raises(LakeUnavailable):
                lake.merge(lakefs_work.repository, Merge("side", "main", base, "m", {}, 30))
            assert proxy.count(MERGE) == 1
        head = lakefs_work.lake.head(lakefs_work.repository, "main")
        assert head.parents == (base,)
        assert lakefs_work.contents("main") == {"a": b"2"}

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_a_server_error_is_unknown_and_is_not_sent_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, status: int
    ) -> None:
        base = staged(lakefs_work)
        with fault_proxy(lakefs_server.url, Fault("answer", MERGE, status=status)) as proxy:
            with pytest.raises(LakeUnavailable):
                open_lakefs(proxy.url).merge(lakefs_work.repository, Merge("side", "main", base, "m", {}, 30))
            assert proxy.count(MERGE) == 1

    @pytest.mark.parametrize("status", [423, 429])
    def test_a_storm_of_locked_branches_is_waited_out(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, status: int
    ) -> None:
        base = staged(lakefs_work)
        waits: list[float] = []
        with fault_proxy(lakefs_server.url, Fault("answer", MERGE, times=5, status=status)) as proxy:
            lake = open_lakefs(proxy.url, sleep=waits.append)
            made = lake.merge(lakefs_work.repository, Merge("side", "main", base, "m", {}, 30))
            assert proxy.count(MERGE) == 6
        assert lakefs_work.head() == made
        assert len(waits) == len(set(waits)) == 5

    def test_a_storm_that_does_not_end_is_a_refusal(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        base = staged(lakefs_work)
        with fault_proxy(lakefs_server.url, Fault("answer", MERGE, times=1000, status=423)) as proxy:
            lake = open_lakefs(proxy.url, tries=4)
            with pytest.raises(LakeRefused, match="busy"):
                lake.merge(lakefs_work.repository, Merge("side", "main", base, "m", {}, 30))
            assert proxy.count(MERGE) == 4
        assert lakefs_work.head() == base

    @pytest.mark.parametrize("status", [423, 429])
    def test_a_fail_fast_merge_reports_a_locked_branch_at_once(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, status: int
    ) -> None:
        base = staged(lakefs_work)
        merge = Merge("side", "main", base, "m", {}, 30, fail_fast_when_busy=True)
        with fault_proxy(lakefs_server.url, Fault("answer", MERGE, status=status)) as proxy:
            lake = open_lakefs(proxy.url)
            with pytest.raises(HeadMoved, match="nothing changed"):
                lake.merge(lakefs_work.repository, merge)
            assert proxy.count(MERGE) == 1
            assert lake.merge(lakefs_work.repository, merge) == lakefs_work.head()

    def test_a_proxys_locked_says_nothing_about_the_branch(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        base = staged(lakefs_work)
        merge = Merge("side", "main", base, "m", {}, 30, fail_fast_when_busy=True)
        fault = Fault("answer", MERGE, status=423, text="<html>Locked</html>")
        with fault_proxy(lakefs_server.url, fault) as proxy, pytest.raises(LakeUnavailable):
            open_lakefs(proxy.url).merge(lakefs_work.repository, merge)

    @pytest.mark.parametrize("way", ["stall", "drip"])
    def test_a_server_that_does_not_come_to_an_end_is_left(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, way: str
    ) -> None:
        base = staged(lakefs_work)
        with fault_proxy(lakefs_server.url, Fault(way, MERGE)) as proxy:  # type: ignore[arg-type]
            with pytest.raises(LakeUnavailable):
                open_lakefs(proxy.url).merge(
                    lakefs_work.repository, Merge("side", "main", base, "m", {}, 0.5)
                )
            assert proxy.count(MERGE) == 1

    def test_nothing_that_listens_is_unavailable(self, lakefs_work: Work, open_lakefs: OpenLakeFS) -> None:
        base = staged(lakefs_work)
        lake = open_lakefs("http://127.0.0.1:1", tries=2)
        with pytest.raises(LakeUnavailable):
            lake.merge(lakefs_work.repository, Merge("side", "main", base, "m", {}, 30))


class TestCommit:
    def test_an_answer_lost_after_the_commit_is_settled_by_reading(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        base = lakefs_work.commit("main", {"a": b"1"})
        lakefs_work.lake.create_branch(lakefs_work.repository, "side", base)
        lakefs_work.put("side", {"a": b"2"})
        with fault_proxy(lakefs_server.url, Fault("cut after", COMMIT)) as proxy:
            made = open_lakefs(proxy.url).commit(lakefs_work.repository, "side", "m", {"perago.phase": "try"})
            assert proxy.count(COMMIT) == 1
        commit = lakefs_work.lake.head(lakefs_work.repository, "side")
        assert (commit.id, commit.parents) == (made, (base,))

    def test_a_commit_that_the_server_never_saw_stays_unknown(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        # The head says the very same, so only what is left uncommitted tells.
        lakefs_work.lake.create_branch(lakefs_work.repository, "side", "main")
        lakefs_work.put("side", {"a": b"1"})
        before = lakefs_work.lake.commit(lakefs_work.repository, "side", "m", {"perago.phase": "try"})
        lakefs_work.put("side", {"a": b"2"})
        with (
            fault_proxy(lakefs_server.url, Fault("cut before", COMMIT)) as proxy,
            pytest.raises(LakeUnavailable),
        ):
            open_lakefs(proxy.url).commit(lakefs_work.repository, "side", "m", {"perago.phase": "try"})
        assert lakefs_work.head("side") == before


class TestRelocate:
    def test_an_answer_lost_after_the_reset_is_unknown_and_is_not_sent_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        base = lakefs_work.commit("main", {"a": b"1"})
        abandoned = lakefs_work.commit("main", {"a": b"abandoned"})
        staging = lakefs_work.stage("side", base, {"a": b"2"})
        with fault_proxy(lakefs_server.url, Fault("cut after", RESET)) as proxy:
            with pytest.raises(LakeUnavailable):
                open_lakefs(proxy.url).relocate(lakefs_work.repository, "main", "side", abandoned, 60)
            assert proxy.count(RESET) == 1
        assert lakefs_work.head() == staging

    @pytest.mark.parametrize(
        ("where", "status"), [(HEAD, 503), (RESET, 423), (TAG, 429)], ids=["the head", "the reset", "the tag"]
    )
    def test_no_call_of_it_is_repeated_beyond_its_time_out(
        self,
        lakefs_server: LakefsServer,
        lakefs_work: Work,
        open_lakefs: OpenLakeFS,
        where: str,
        status: int,
    ) -> None:
        base = lakefs_work.commit("main", {"a": b"1"})
        abandoned = lakefs_work.commit("main", {"a": b"abandoned"})
        lakefs_work.stage("side", base, {"a": b"2"})
        waited: list[float] = []
        with fault_proxy(lakefs_server.url, Fault("answer", where, times=100, status=status)) as proxy:
            lake = open_lakefs(
                proxy.url, clock=lambda: sum(waited), sleep=waited.append, random=LongestDelays()
            )

            def replace_head() -> None:
                lake.create_tag(lakefs_work.repository, "replaced", abandoned, timeout=1)
                lake.relocate(lakefs_work.repository, "main", "side", abandoned, 1)

            with pytest.raises((LakeUnavailable, LakeRefused)):
                replace_head()
            # After 0, 0.1, 0.3 and 0.7 seconds; the next try would have come after 1.5.
            assert proxy.count(where) == 4
        assert lakefs_work.head() == abandoned


class TestNames:
    def test_a_branch_whose_making_is_in_doubt_is_not_made_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        with fault_proxy(lakefs_server.url, Fault("cut after", r"POST .*/branches$")) as proxy:
            lake = open_lakefs(proxy.url)
            with pytest.raises(LakeUnavailable):
                lake.create_branch(lakefs_work.repository, "claim", "main")
            assert proxy.count(r"POST .*/branches$") == 1
            with pytest.raises(LakeConflict):
                lake.create_branch(lakefs_work.repository, "claim", "main")

    def test_a_branch_whose_dropping_is_in_doubt_is_dropped_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        lakefs_work.lake.create_branch(lakefs_work.repository, "side", "main")
        with fault_proxy(lakefs_server.url, Fault("cut after", r"DELETE .*/branches/side")) as proxy:
            open_lakefs(proxy.url).drop_branch(lakefs_work.repository, "side")
            assert proxy.count(r"DELETE .*/branches/side") == 2
        with pytest.raises(LakeNotFound):
            lakefs_work.head("side")

    def test_reads_survive_a_storm_of_errors_and_cuts(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        head = lakefs_work.commit("main", {"a": b"1"})
        faults = (Fault("answer", "GET", times=3), Fault("cut before", "GET", times=3))
        with fault_proxy(lakefs_server.url, *faults) as proxy:
            assert open_lakefs(proxy.url).head(lakefs_work.repository, "main").id == head
            assert proxy.count("GET") == 7


class TestBytes:
    def test_a_download_whose_connections_are_cut_is_retried_by_object(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        objects = {f"f{n}": bytes([n]) * 50_000 for n in range(10)}
        commit = lakefs_work.commit("main", objects)
        entries = list(lakefs_work.lake.list(lakefs_work.repository, commit, ""))
        files = [Download(entry, tmp_path / entry.path) for entry in entries]
        faults = (
            Fault("cut body", OBJECT, times=4, keep=20_000),
            Fault("answer", OBJECT, times=3),
            Fault("cut before", OBJECT, times=3),
        )
        with fault_proxy(lakefs_server.url, *faults) as proxy:
            open_lakefs(proxy.url).download(lakefs_work.repository, commit, files)
            assert proxy.count(OBJECT) == 20
        assert {file.entry.path: file.target.read_bytes() for file in files} == objects
        assert not list(tmp_path.glob(".perago-*"))

    @pytest.mark.parametrize(
        ("part", "ranges_above"),
        [(10**9, 10**9), (MIB, 10**9), (MIB, 2 * MIB)],
        ids=["in memory", "streamed", "in ranges"],
    )
    def test_a_large_download_continues_where_it_was_cut(
        self,
        lakefs_server: LakefsServer,
        lakefs_work: Work,
        open_lakefs: OpenLakeFS,
        tmp_path: Path,
        part: int,
        ranges_above: int,
    ) -> None:
        data = bytes(range(256)) * 20_000
        commit = lakefs_work.commit("main", {"large": data})
        [entry] = lakefs_work.lake.list(lakefs_work.repository, commit, "")
        with fault_proxy(lakefs_server.url, Fault("cut body", OBJECT, times=3, keep=700_000)) as proxy:
            lake = open_lakefs(proxy.url, part_bytes=part, ranges_above_bytes=ranges_above)
            found = lake.download(lakefs_work.repository, commit, [Download(entry, tmp_path / "out")])
        assert (tmp_path / "out").read_bytes() == data
        assert found == {"large": hashlib.md5(data).hexdigest()}

    def test_a_read_continues_where_it_was_cut(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        data = bytes(range(256)) * 20_000
        commit = lakefs_work.commit("main", {"large": data})
        with fault_proxy(lakefs_server.url, Fault("cut body", OBJECT, times=2, keep=1_500_000)) as proxy:
            assert b"".join(open_lakefs(proxy.url).read(lakefs_work.repository, commit, "large")) == data
            assert proxy.count(OBJECT) == 3

    def test_an_upload_whose_answers_are_lost_is_retried_by_object(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        objects = {f"f{n}": bytes([n]) * 50_000 for n in range(10)}
        uploads = [lakefs_work.an_upload(path, data) for path, data in objects.items()]
        faults = (
            Fault("cut after", OBJECT, times=4),
            Fault("cut before", OBJECT, times=3),
            Fault("answer", OBJECT, times=3),
        )
        with fault_proxy(lakefs_server.url, *faults) as proxy:
            open_lakefs(proxy.url).upload(lakefs_work.repository, "main", uploads)
            assert proxy.count(OBJECT) == 20
        assert lakefs_work.contents("main") == objects

    def test_a_multipart_upload_survives_cuts(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        data = bytes(range(256)) * 80_000
        faults = (Fault("cut before", "PUT .*partNumber"), Fault("cut after", "POST .*uploadId"))
        with fault_proxy(lakefs_server.url, *faults) as proxy:
            lake = open_lakefs(proxy.url, backoff_seconds=0.01)
            lake.upload(lakefs_work.repository, "main", [lakefs_work.an_upload("large", data)])
        assert lakefs_work.bytes_at("main", "large") == data
        [entry] = lakefs_work.lake.list(lakefs_work.repository, "main", "")
        assert entry.checksum == hashlib.md5(data).hexdigest()

    def test_an_upload_that_never_gets_through_is_unavailable_by_name(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        with (
            fault_proxy(lakefs_server.url, Fault("answer", OBJECT, times=1000)) as proxy,
            pytest.raises(LakeUnavailable, match="some/path"),
        ):
            open_lakefs(proxy.url, tries=3).upload(
                lakefs_work.repository, "main", [lakefs_work.an_upload("some/path", b"1")]
            )
