"""Transfers past lakeFS by presigned URLs: their routes, and that the URLs are never shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.errors import LakeError, LakeForbidden, LakeRefused, LakeUnavailable
from perago.lake.base import Download, Entry, Verification
from perago.lake.lakefs.lake import LakeFSLake
from perago.runtime.observe.logs import TextFormatter
from perago.runtime.observe.sanitize import MASK, Masker
from tests.conftest import LakefsServer, ProductionServers, fresh_repository
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.servers.lakefs import WITHOUT_WAITING, lakefs_lake
from tests.support.servers.own_lakefs import GET, PROBE, PUT, PresignedLakefs, presigned_lakefs
from tests.support.worlds.lake_work import Work
from tests.support.worlds.world import World, make_task

MIB = 1024 * 1024
LARGE = bytes(range(256)) * (72 * 1024)
"""18 MiB: goes in parts, comes as a stream."""
THROUGH_LAKEFS = r"^(GET|PUT|POST) /test-[^/]+/"


@pytest.fixture(scope="module")
def presigned(
    production_servers: ProductionServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PresignedLakefs]:
    with presigned_lakefs(production_servers.store, tmp_path_factory.mktemp("past")) as made:
        yield made


@pytest.fixture
def work(presigned: PresignedLakefs, tmp_path: Path) -> Iterator[Work]:
    """The usual moves on a repository whose objects go past lakeFS; nothing was seen so far."""
    presigned.forget()
    with (
        fresh_repository(presigned.server) as repository,
        _lake(presigned.server, tmp_path, transfer="presigned") as lake,
    ):
        yield Work(lake, repository, tmp_path / "files")
    presigned.forget()


def fetch(work: Work, ref: str, folder: Path, lake: LakeFSLake | None = None) -> dict[str, bytes]:
    """Download everything; returns the bytes by path."""
    folder.mkdir(exist_ok=True)
    entries: list[Entry] = list(work.lake.list(work.repository, ref, ""))
    files = [Download(entry, folder / str(number)) for number, entry in enumerate(entries)]
    (lake or work.lake).download(work.repository, ref, files)
    return {file.entry.path: file.target.read_bytes() for file in files}


class TestRouting:
    def test_bytes_go_straight_between_store_and_worker(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        wanted = {"a/1.txt": b"one", "a/empty": b"", "b/large.bin": LARGE, "c/ü \n~.txt": b"odd name"}
        with (
            fault_proxy(presigned.server.url) as before,
            _lake(presigned.server, tmp_path, url=before.url, transfer="presigned") as lake,
        ):
            through = Work(lake, work.repository, tmp_path / "through")
            commit = through.commit("main", wanted)
            assert fetch(through, commit, tmp_path / "got") == wanted
            assert before.count(THROUGH_LAKEFS) == 0
        # Three files whole, one in three parts.
        assert presigned.proxy.count(PUT) == 6
        assert presigned.proxy.count(GET) == 4

    def test_a_commit_made_past_lakefs_reads_the_same_through_it(self, work: Work) -> None:
        wanted = {"a": b"1", "b": LARGE}
        commit = work.commit("main", wanted)

        assert work.contents(commit) == wanted

    def test_checksums_are_the_md5s_of_the_bytes_whichever_way_they_went(self, work: Work) -> None:
        uploads = [work.an_upload("a", b"1"), work.an_upload("b", LARGE)]
        work.lake.upload(work.repository, "main", uploads)

        found = {entry.path: entry.checksum for entry in work.lake.list(work.repository, "main", "")}

        assert found == {upload.path: upload.checksum for upload in uploads}

    def test_many_addresses_are_asked_for_at_once(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        commit = work.commit("main", {f"many/{number:03}": b"%d" % number for number in range(40)})
        with (
            fault_proxy(presigned.server.url) as before,
            lakefs_lake(presigned.server, tmp_path / "c", url=before.url, cache_bytes=0) as lake,
        ):
            fetch(work, commit, tmp_path / "got", lake)
            assert before.count(r"objects/ls\?.*presign=[Tt]rue") == 1
            assert before.count(r"objects/stat\?") == 0

    def test_a_store_that_cannot_be_reached_means_the_gateway_and_one_warning(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        presigned.proxy.faults.append(Fault("cut before", PROBE, times=100))
        wanted = {"a": b"1", "b": LARGE, "c": b"3"}

        with _lake(presigned.server, tmp_path, transfer="auto") as lake:
            commit = Work(lake, work.repository, tmp_path / "through").commit("main", wanted)
            assert fetch(work, commit, tmp_path / "got", lake) == wanted
        assert presigned.proxy.count(GET) + presigned.proxy.count(PUT) == 0
        [said] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert "cannot be reached from here" in said
        assert "PERAGO_TRANSFER=gateway" in said

    @pytest.mark.parametrize(("small", "read_past"), [(3, 1), (4, 5)])
    def test_left_to_itself_it_sends_small_files_through_lakefs_and_reads_a_few_of_them_there(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path, small: int, read_past: int
    ) -> None:
        files = {f"small-{number}": b"%d" % number for number in range(small)}
        with _lake(presigned.server, tmp_path, transfer="auto") as lake:
            through = Work(lake, work.repository, tmp_path / "through")
            commit = through.commit("main", {**files, "larger": LARGE[: 2 * MIB]})
            assert presigned.proxy.count(PUT) == 1
            assert len(fetch(through, commit, tmp_path / "got")) == small + 1

        assert presigned.proxy.count(GET) == read_past

    def test_left_to_itself_with_a_few_small_files_it_does_not_ask_what_the_server_offers(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        with (
            fault_proxy(presigned.server.url) as before,
            _lake(presigned.server, tmp_path, url=before.url, transfer="auto") as lake,
        ):
            through = Work(lake, work.repository, tmp_path / "through")
            commit = through.commit("main", {"one": b"1"})
            fetch(through, commit, tmp_path / "got", lake)
            assert before.count(r"/config") == 0

    def test_presigned_by_name_fails_where_the_store_cannot_be_reached(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        presigned.proxy.faults.append(Fault("cut before", PROBE, times=100))
        lake = _lake(presigned.server, tmp_path, transfer="presigned")

        with lake, pytest.raises(LakeUnavailable, match="set PERAGO_TRANSFER=auto"):
            lake.upload(work.repository, "main", [work.an_upload("a", b"1")])

    def test_gateway_by_name_never_goes_past_lakefs(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        with _lake(presigned.server, tmp_path, transfer="gateway") as lake:
            through = Work(lake, work.repository, tmp_path / "through")
            commit = through.commit("main", {"a": b"1", "b": LARGE})
            fetch(through, commit, tmp_path / "got")

        assert presigned.proxy.seen == []


def test_presigned_by_name_is_refused_by_a_server_that_does_not_offer_it(
    lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
) -> None:
    with _lake(lakefs_server, tmp_path, transfer="presigned") as lake:
        work = Work(lake, lakefs_repository, tmp_path / "files")
        with pytest.raises(LakeRefused, match="set PERAGO_TRANSFER=auto"):
            work.put("main", {"a": b"1"})


class TestFaults:
    @pytest.mark.parametrize("way", ["cut before", "cut after", "answer", "cut body", "other bytes"])
    def test_a_small_object_is_fetched_again(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path, way: str
    ) -> None:
        commit = work.commit("main", {"a": b"a few bytes"})
        presigned.proxy.faults.append(Fault(way, GET, keep=3))  # type: ignore[arg-type]

        assert fetch(work, commit, tmp_path / "got") == {"a": b"a few bytes"}
        assert presigned.proxy.count(GET) == 2

    def test_a_large_download_continues_where_it_was_cut(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        commit = work.commit("main", {"a": LARGE})
        presigned.proxy.faults.append(Fault("cut body", GET, keep=5 * MIB))

        assert fetch(work, commit, tmp_path / "got") == {"a": LARGE}
        assert presigned.proxy.count(GET) == 2

    def test_a_large_object_whose_bytes_are_others_is_fetched_again(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        commit = work.commit("main", {"a": LARGE})
        presigned.proxy.faults.append(Fault("other bytes", GET))

        assert fetch(work, commit, tmp_path / "got") == {"a": LARGE}
        assert presigned.proxy.count(GET) == 2

    def test_a_large_object_whose_bytes_are_others_is_told_at_the_verdict(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        commit = work.commit("main", {"large": LARGE})
        [entry] = work.lake.list(work.repository, commit, "")
        presigned.proxy.faults.append(Fault("other bytes", GET))
        with (
            _lake(presigned.server, tmp_path, transfer="presigned", hashed_below=0) as lake,
            Verification() as verification,
        ):
            file = Download(entry, tmp_path / "out")
            lake.download(work.repository, commit, [file], verification=verification)
            with pytest.raises(LakeError, match=r"'large'.*damaged on its way"):
                verification.wait()
        assert presigned.proxy.count(GET) == 2

    @pytest.mark.parametrize("way", ["stall", "drip"])
    def test_a_store_that_does_not_come_to_an_end_is_left(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path, way: str
    ) -> None:
        commit = work.commit("main", {"a": b"1"})
        presigned.proxy.faults.append(Fault(way, GET))  # type: ignore[arg-type]

        with lakefs_lake(
            presigned.server,
            tmp_path / "c",
            cache_bytes=0,
            read_timeout=1,
            object_timeout=2,
            **WITHOUT_WAITING,
        ) as lake:
            assert fetch(work, commit, tmp_path / "got", lake) == {"a": b"1"}

    @pytest.mark.parametrize(
        ("way", "requests"),
        [("cut before", 2), ("cut after", 2), ("answer", 2), ("other bytes sent", 2)],
    )
    def test_a_file_is_sent_again_and_appears_once_and_right(
        self, presigned: PresignedLakefs, work: Work, way: str, requests: int
    ) -> None:
        presigned.proxy.faults.append(Fault(way, PUT))  # type: ignore[arg-type]

        work.put("main", {"a": b"what was hashed"})

        assert work.contents("main") == {"a": b"what was hashed"}
        assert presigned.proxy.count(PUT) == requests

    @pytest.mark.parametrize("way", ["cut before", "answer", "other bytes sent"])
    def test_a_part_is_sent_again_by_itself(self, presigned: PresignedLakefs, work: Work, way: str) -> None:
        presigned.proxy.faults.append(Fault(way, PUT))  # type: ignore[arg-type]

        work.put("main", {"a": LARGE})

        assert work.contents("main") == {"a": LARGE}
        assert presigned.proxy.count(PUT) == 4

    def test_a_multipart_upload_whose_completion_was_not_answered_is_looked_up(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        with (
            fault_proxy(presigned.server.url, Fault("cut after", r"^PUT .*/staging/pmpu/[^/]+\?")) as before,
            lakefs_lake(presigned.server, tmp_path / "c", url=before.url, **WITHOUT_WAITING) as lake,
        ):
            Work(lake, work.repository, tmp_path / "through").put("main", {"a": LARGE})

        assert work.contents("main") == {"a": LARGE}
        assert presigned.proxy.count(PUT) == 3

    def test_a_link_whose_answer_was_lost_is_made_again(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        with (
            fault_proxy(presigned.server.url, Fault("cut after", r"^PUT .*/staging/backing")) as before,
            _lake(presigned.server, tmp_path, url=before.url, transfer="presigned") as lake,
        ):
            Work(lake, work.repository, tmp_path / "through").put("main", {"a": b"1"})
            assert before.count(r"^PUT .*/staging/backing") == 2

        assert work.contents("main") == {"a": b"1"}
        assert presigned.proxy.count(PUT) == 1

    def test_a_file_that_changes_under_way_does_not_appear(self, work: Work) -> None:
        upload = work.an_upload("a", LARGE)
        upload.source.write_bytes(LARGE[:-1] + b"x")

        with pytest.raises(LakeError, match="changed after it was hashed"):
            work.lake.upload(work.repository, "main", [upload])

        assert work.paths("main") == []


class TestPresignedUrls:
    @pytest.mark.parametrize("size", [10, len(LARGE)], ids=["small", "large"])
    def test_a_presigned_url_that_the_store_rejects_is_requested_again(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path, size: int
    ) -> None:
        presigned.proxy.faults.append(Fault("answer", PUT, status=403))
        commit = work.commit("main", {"a": LARGE[:size]})
        presigned.proxy.faults.append(Fault("answer", GET, status=403))

        assert fetch(work, commit, tmp_path / "got") == {"a": LARGE[:size]}

    def test_a_presigned_url_that_has_really_expired_is_requested_again(
        self, production_servers: ProductionServers, tmp_path: Path
    ) -> None:
        with (
            presigned_lakefs(production_servers.store, tmp_path, pre_signed_expiry="5s") as presigned,
            fresh_repository(presigned.server) as repository,
            _lake(presigned.server, tmp_path, transfer="presigned") as lake,
        ):
            work = Work(lake, repository, tmp_path / "files")
            commit = work.commit("main", {"a": b"1"})
            presigned.proxy.faults.append(Fault("hold", GET, seconds=7))

            assert fetch(work, commit, tmp_path / "got") == {"a": b"1"}
            assert presigned.proxy.count(GET) == 2

    def test_a_store_that_takes_none_is_an_error_that_says_what_to_do(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path
    ) -> None:
        commit = work.commit("main", {"a": b"1"})
        presigned.proxy.faults.append(Fault("answer", f"{GET}|{PUT}", status=403, times=100))

        with pytest.raises(LakeForbidden, match="set PERAGO_TRANSFER=gateway"):
            fetch(work, commit, tmp_path / "got")
        with pytest.raises(LakeForbidden, match="set PERAGO_TRANSFER=gateway"):
            work.put("main", {"b": b"2"})
        with pytest.raises(LakeForbidden, match="set PERAGO_TRANSFER=gateway"):
            work.put("main", {"b": LARGE})

    @pytest.mark.parametrize(
        "fault",
        [
            Fault("answer", f"{GET}|{PUT}", status=403, times=100),
            Fault("answer", f"{GET}|{PUT}", status=503, times=100, text="<Code>SlowDown</Code>"),
            Fault("answer", f"{GET}|{PUT}", status=404, times=100),
            Fault("cut before", f"{GET}|{PUT}", times=100),
            Fault("cut after", f"{GET}|{PUT}", times=100),
            Fault("stall", f"{GET}|{PUT}", times=100),
            Fault("cut before", PROBE, times=100),
        ],
        ids=["403", "503", "404", "cut before", "cut after", "stall", "unreachable"],
    )
    def test_none_is_in_an_error(
        self, presigned: PresignedLakefs, work: Work, tmp_path: Path, fault: Fault
    ) -> None:
        commit = work.commit("main", {"a": b"1"})
        presigned.proxy.faults.append(fault)
        quick = {**WITHOUT_WAITING, "tries": 2, "read_timeout": 0.5}
        for size in (1, len(LARGE)):
            with _lake(presigned.server, tmp_path, transfer="presigned", **quick) as lake:
                with pytest.raises(LakeError) as fetching:
                    fetch(work, commit, tmp_path / "got", lake)
                with pytest.raises(LakeError) as sending:
                    Work(lake, work.repository, tmp_path / "through").put("main", {"b": LARGE[:size]})
            for told in (fetching.value, sending.value):
                assert "X-Amz" not in _everything(told)

    @pytest.mark.parametrize("status", [403, 503])
    def test_none_is_in_what_an_attempt_reports_nor_its_signature_in_a_log(
        self,
        presigned: PresignedLakefs,
        work: Work,
        tmp_path: Path,
        status: int,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        world = World(work.lake, work.repository, tmp_path)
        world.commit({"data/input.txt": "in"})
        presigned.proxy.faults.append(Fault("answer", GET, status=status, times=100))

        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="urllib3"):
            settled = world.run(make_task())
        world.orchestrator.close()

        assert settled.outcome.status == "FAILED"
        assert f"answered {status}" in (settled.outcome.reason or "")
        assert "X-Amz" not in (settled.outcome.reason or "")
        ours = [record.getMessage() for record in caplog.records if record.name.startswith("perago")]
        assert [text for text in ours if "X-Amz" in text] == []
        # The HTTP library tells its own log every address; what a worker writes of that has no signature.
        shown = [TextFormatter(Masker([])).format(record) for record in caplog.records]
        signed = [line for line in shown if "X-Amz-Signature=" in line]
        assert signed
        assert [line for line in signed if f"X-Amz-Signature={MASK}" not in line] == []


def _lake(
    server: LakefsServer, folder: Path, *, transfer: str, url: str | None = None, **options: object
) -> LakeFSLake:
    """A lake without a cache, and without waits between retries."""
    chosen = {**WITHOUT_WAITING, **options}
    return lakefs_lake(server, folder / "cache", url=url, cache_bytes=0, transfer=transfer, **chosen)


def _everything(error: BaseException) -> str:
    """Return what a traceback of the error shows."""
    told: dict[int, str] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in told:
            told[id(one)] = f"{one!r} {one}"
            waiting += [one.__cause__, one.__context__]
    return "\n".join(told.values())
