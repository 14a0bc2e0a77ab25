"""Checksums of downloads and uploads: verified if they are MD5s, recognized if they are not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from obstore.store import S3Store

from perago.errors import LakeError
from perago.lake.base import Download, Entry
from perago.lake.lakefs.lake import LakeFSLake
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.attempt.listing import list_view
from perago.runtime.attempt.workdir import Workdir
from tests.conftest import LakefsServer
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.servers.lakefs import ATTEMPT, MIB, OBJECT, OpenLakeFS, fetch, md5
from tests.support.worlds.lake_work import Work


def put_in_parts(server: LakefsServer, repository: str, path: str, data: bytes, part: int) -> None:
    """Upload in parts without an MD5, as other tools do."""
    store = S3Store(
        repository,
        endpoint=server.url,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    store.put(f"main/{path}", data, use_multipart=True, chunk_size=part)


def link_with_checksums(
    server: LakefsServer, work: Work, objects: dict[str, bytes], checksums: dict[str, str]
) -> str:
    """Link an object with a given checksum, as an import or a presigned upload does."""
    work.put("main", objects)
    at = f"/repositories/{work.repository}/branches/main/objects"
    for path, data in objects.items():
        found = server.call(
            "GET", f"/repositories/{work.repository}/refs/main/objects/stat?path={path.replace('/', '%2F')}"
        )
        wanted = {"physical_address": found["physical_address"], "size_bytes": len(data)}
        server.call("PUT", f"{at}?path={path.replace('/', '%2F')}", {**wanted, "checksum": checksums[path]})
    return work.lake.commit(work.repository, "main", "link", {})


class TestChecksums:
    @pytest.mark.parametrize(
        ("size", "part", "fetched"),
        [(1000, 5 * MIB, 1), (11 * MIB, 5 * MIB, 1), (17 * MIB, 8 * MIB, 1), (15 * MIB, 7 * MIB, 2)],
        ids=["one part", "parts of 5", "parts of 8", "unusual parts"],
    )
    def test_other_tools_multipart_objects_are_verified_and_cached(
        self,
        lakefs_server: LakefsServer,
        lakefs_work: Work,
        open_lakefs: OpenLakeFS,
        tmp_path: Path,
        size: int,
        part: int,
        fetched: int,
    ) -> None:
        data = bytes(range(251)) * (size // 251 + 1)
        data = data[:size]
        put_in_parts(lakefs_server, lakefs_work.repository, "theirs", data, part)
        commit = lakefs_work.lake.commit(lakefs_work.repository, "main", "m", {})
        with fault_proxy(lakefs_server.url) as proxy:
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "one") == {"theirs": data}
            assert proxy.count(OBJECT) == fetched
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "two") == {"theirs": data}
            assert proxy.count(OBJECT) == fetched

    def test_a_checksum_of_no_known_form_is_said_in_the_log(
        self,
        lakefs_server: LakefsServer,
        lakefs: LakeFSLake,
        lakefs_work: Work,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        put_in_parts(lakefs_server, lakefs_work.repository, "theirs", b"x" * 15 * MIB, 7 * MIB)
        commit = lakefs_work.lake.commit(lakefs_work.repository, "main", "m", {})
        with caplog.at_level(logging.WARNING):
            fetch(lakefs, lakefs_work, commit, tmp_path / "one")
        assert "is no MD5" in caplog.text
        assert "'theirs'" in caplog.text

    def test_our_own_large_objects_list_the_md5_of_their_bytes(
        self, lakefs: LakeFSLake, lakefs_work: Work, tmp_path: Path
    ) -> None:
        data = bytes(range(256)) * 4096 * 20
        commit = lakefs_work.commit("main", {"large": data, "medium": data[: 6 * MIB], "small": data[:10]})
        listed = {entry.path: entry.checksum for entry in lakefs.list(lakefs_work.repository, commit, "")}
        assert listed == {"large": md5(data), "medium": md5(data[: 6 * MIB]), "small": md5(data[:10])}
        assert fetch(lakefs, lakefs_work, commit, tmp_path / "one")["large"] == data

    @pytest.mark.parametrize("size", [10, 3 * MIB, 9 * MIB])
    def test_objects_whose_checksum_is_no_hash_pass_if_two_transfers_agree_and_are_cached(
        self,
        lakefs_server: LakefsServer,
        lakefs_work: Work,
        open_lakefs: OpenLakeFS,
        tmp_path: Path,
        size: int,
    ) -> None:
        objects = {f"f{n}": bytes([n]) * size for n in range(3)}
        # Equal ones on purpose: nothing says that such checksums differ where the bytes do.
        commit = link_with_checksums(lakefs_server, lakefs_work, objects, dict.fromkeys(objects, "0" * 32))
        with fault_proxy(lakefs_server.url) as proxy:
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "one") == objects
            assert proxy.count(OBJECT) == 6
            later = lakefs_work.commit("main", {"g": b"g"})
            assert fetch(open_lakefs(proxy.url), lakefs_work, later, tmp_path / "two") == {
                **objects,
                "g": b"g",
            }
            assert proxy.count(OBJECT) == 7

    @pytest.mark.parametrize("cache_bytes", [0, 10**9])
    def test_an_object_with_an_odd_checksum_is_unchanged_in_a_workdir_until_its_bytes_change(
        self,
        lakefs_server: LakefsServer,
        lakefs_work: Work,
        open_lakefs: OpenLakeFS,
        tmp_path: Path,
        cache_bytes: int,
    ) -> None:
        objects = {f"f{n}": bytes([n]) * 100 for n in range(3)}
        checksums = {path: md5(path.encode()) for path in objects}
        commit = link_with_checksums(lakefs_server, lakefs_work, objects, checksums)
        lake = open_lakefs(cache_bytes=cache_bytes)
        workspace = Workspace(lakefs_work.repository, "main", commit, "")
        for turn in ("first", "from the cache"):
            workdir = Workdir.create(tmp_path / turn, ATTEMPT, "0" * 16, now=0)
            base = workdir.fill(lake, workspace)
            assert not workdir.result(lake, workspace).changes()
            (workdir.path / "f1").write_bytes(b"new")
            assert workdir.result(lake, workspace).changes().put == ("f1",)
            # A later head that still lists it so holds the same bytes.
            head = list_view(lake, lakefs_work.repository, "main", View(""))
            assert head.states(base) == base.states()

    def test_one_warning_covers_all_such_objects_of_a_repository(
        self,
        lakefs_server: LakefsServer,
        lakefs: LakeFSLake,
        lakefs_work: Work,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        objects = {f"f{n}": bytes([n]) * 100 for n in range(5)}
        checksums = {path: md5(path.encode()) for path in objects}
        commit = link_with_checksums(lakefs_server, lakefs_work, objects, checksums)
        with caplog.at_level(logging.WARNING):
            fetch(lakefs, lakefs_work, commit, tmp_path / "one")
        [said] = [record.getMessage() for record in caplog.records]
        assert lakefs_work.repository in said
        assert "is no MD5 of its 100 bytes" in said

    def test_two_transfers_that_differ_are_refused_by_name(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        commit = link_with_checksums(
            lakefs_server, lakefs_work, {"some/path": b"x" * 99}, {"some/path": "0" * 32}
        )
        entry = next(iter(lakefs_work.lake.list(lakefs_work.repository, commit, "")))
        with fault_proxy(lakefs_server.url, Fault("other bytes", f"{OBJECT}some/path")) as proxy:
            lake = open_lakefs(proxy.url)
            with pytest.raises(LakeError, match=r"some/path.*two transfers gave different bytes"):
                lake.download(lakefs_work.repository, commit, [Download(entry, tmp_path / "out")])
        assert not (tmp_path / "out").exists()
        assert not list(tmp_path.glob(".perago-*"))

    def test_bytes_damaged_on_their_way_come_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {"some/path": b"x" * 99})
        with fault_proxy(lakefs_server.url, Fault("other bytes", f"{OBJECT}some/path")) as proxy:
            found = fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "one")
            assert proxy.count(OBJECT) == 2
        assert found == {"some/path": b"x" * 99}

    def test_an_object_of_another_size_than_listed_is_refused_by_name(
        self, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {"some/path": b"x" * 100})
        wrong = Download(Entry("some/path", 99, None), tmp_path / "out")
        with pytest.raises(LakeError, match=r"some/path.*100 bytes arrived, not 99"):
            open_lakefs(tries=2).download(lakefs_work.repository, commit, [wrong])
        assert list(tmp_path.glob("out")) == []
