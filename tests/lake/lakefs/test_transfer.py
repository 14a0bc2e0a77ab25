"""Bytes in and out of the real server: cached, verified, whatever form their checksum has and whatever their name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perago.errors import LakeError
from perago.lake.base import Download, Entry, Upload
from perago.lake.lakefs.lake import LakeFSLake
from tests.conftest import LakefsServer, fresh_repository
from tests.support.faults.disks import no_file_above
from tests.support.faults.proxy import FaultProxy, fault_proxy
from tests.support.servers.lakefs import MIB, OBJECT, OpenLakeFS, fetch, md5
from tests.support.worlds.cache_fixture import COLLIDING
from tests.support.worlds.lake_work import Work


class TestCache:
    def test_the_second_download_moves_no_bytes(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        objects = {"a": b"1" * 50, "b/c": b"2" * 100_000, "empty": b"", "large": bytes(range(256)) * 40_000}
        commit = lakefs_work.commit("main", objects)
        with fault_proxy(lakefs_server.url) as proxy:
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "one") == objects
            assert proxy.count(OBJECT) == 4
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "two") == objects
            assert proxy.count(OBJECT) == 4

    def test_progress_counts_files_done_and_bytes_moved(
        self, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {"a": b"1" * 50, "large": b"2" * 9 * MIB})
        for name, moved in (("first", 50 + 9 * MIB), ("again", 0)):
            lake, told = open_lakefs(), []
            files = [
                Download(entry, tmp_path / f"{name}-{entry.path}")
                for entry in lake.list(lakefs_work.repository, commit, "")
            ]
            lake.download(lakefs_work.repository, commit, files, lambda *more, told=told: told.append(more))
            assert sum(done for done, _ in told) == 2
            assert sum(size for _, size in told) == moved

    def test_an_object_that_stayed_the_same_in_a_later_commit_does_not_come_again(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        first = lakefs_work.commit("main", {"same": b"s" * 1000, "other": b"1"})
        second = lakefs_work.commit("main", {"other": b"2"})
        with fault_proxy(lakefs_server.url) as proxy:
            fetch(open_lakefs(proxy.url), lakefs_work, first, tmp_path / "one")
            fetch(open_lakefs(proxy.url), lakefs_work, second, tmp_path / "two")
            assert proxy.count(f"{OBJECT}same") == 1

    def test_two_repositories_with_objects_of_one_md5_get_their_own_bytes(
        self, lakefs_server: LakefsServer, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        lake, (theirs, ours) = open_lakefs(), COLLIDING
        assert theirs != ours
        assert md5(theirs) == md5(ours)
        found = []
        for number, data in enumerate(COLLIDING):
            put, got = tmp_path / f"put-{number}", tmp_path / f"got-{number}"
            put.write_bytes(data)
            with fresh_repository(lakefs_server) as repository:
                lake.upload(repository, "main", [Upload(put, "model", len(data), md5(data))])
                commit = lake.commit(repository, "main", "a model", {})
                [entry] = lake.list(repository, commit, "")
                lake.download(repository, commit, [Download(entry, got)])
            found.append(got.read_bytes())

        assert found == [theirs, ours]

    @pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
    def test_a_damaged_object_is_fetched_again_and_only_that_one(
        self,
        lakefs_server: LakefsServer,
        lakefs_work: Work,
        open_lakefs: OpenLakeFS,
        tmp_path: Path,
        damage: str,
    ) -> None:
        objects = {f"f{n}": bytes([n]) * 5000 for n in range(6)}
        commit = lakefs_work.commit("main", objects)
        with fault_proxy(lakefs_server.url) as proxy:
            fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "one")
            proxy.seen.clear()
            [kept] = tmp_path.glob(f"cache/objects/*/{md5(objects['f3'])}-5000-*")
            data = kept.read_bytes()
            kept.unlink()
            if damage != "gone":
                kept.write_bytes(data[:-1] + (b"x" if damage == "flip" else b""))
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "two") == objects
            assert proxy.count(OBJECT) == proxy.count(f"{OBJECT}f3") == 1
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "three") == objects
            assert proxy.count(OBJECT) == 1

    def test_a_full_disk_costs_the_cache_nothing_and_names_the_file(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        objects = {f"f{n}": bytes([n]) * 2 * MIB for n in range(4)}
        commit = lakefs_work.commit("main", objects)
        with fault_proxy(lakefs_server.url) as proxy:
            fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "one")
            proxy.seen.clear()
            with (
                no_file_above(MIB),
                pytest.raises(LakeError, match=r"cannot write 'f\d' to .*File too large"),
            ):
                fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "two")
            assert list((tmp_path / "two").iterdir()) == []
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "three") == objects
            assert proxy.count(OBJECT) == 0

    def test_downloads_and_their_cached_copies_are_private_to_their_owner(
        self, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {"small": b"1", "large": b"2" * 9 * MIB})
        for name in ("from the server", "from the cache"):
            fetch(open_lakefs(), lakefs_work, commit, tmp_path / name)
        found = [path for path in tmp_path.glob("*/**/*") if path.is_file() and "files" not in path.parts]
        assert len(found) >= 6
        assert [path for path in found if path.stat().st_mode & 0o077] == []

    def test_a_body_that_writes_into_its_file_costs_no_small_object_and_spoils_none(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        objects = {"a": b"1" * 500, "b": b"2" * 500}
        commit = lakefs_work.commit("main", objects)
        with fault_proxy(lakefs_server.url) as proxy:
            fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "one")
            proxy.seen.clear()
            with open(tmp_path / "one/0", "r+b") as body:
                body.write(b"the body was here")
            assert fetch(open_lakefs(proxy.url), lakefs_work, commit, tmp_path / "two") == objects
            assert proxy.count(OBJECT) == 0

    def test_a_cache_smaller_than_the_input_is_no_obstacle(
        self, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        objects = {f"f{n}": bytes([n]) * 1000 for n in range(20)}
        commit = lakefs_work.commit("main", objects)
        lake = open_lakefs(cache_bytes=5000)
        assert fetch(lake, lakefs_work, commit, tmp_path / "one") == objects
        assert fetch(lake, lakefs_work, commit, tmp_path / "two") == objects
        assert sum(file.stat().st_size for file in tmp_path.glob("cache/objects/*/*")) <= 5000

    def test_without_a_cache_everything_comes_from_the_server(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {"a": b"1"})
        with fault_proxy(lakefs_server.url) as proxy:
            for name in ("one", "two"):
                fetch(open_lakefs(proxy.url, cache_bytes=0), lakefs_work, commit, tmp_path / name)
            assert proxy.count(OBJECT) == 2


class TestUpload:
    @pytest.mark.parametrize("change", ["grown", "cut", "other"])
    def test_a_large_file_that_changed_after_it_was_hashed_does_not_appear(
        self, lakefs: LakeFSLake, lakefs_work: Work, change: str
    ) -> None:
        data = b"x" * 20 * MIB
        upload = lakefs_work.an_upload("some/path", data)
        changed = {"grown": data + b"x", "cut": data[:-1], "other": data[:-1] + b"y"}[change]
        upload.source.write_bytes(changed)
        with pytest.raises(LakeError, match=r"some/path.*changed"):
            lakefs.upload(lakefs_work.repository, "main", [upload])
        assert lakefs_work.paths("main") == []

    def test_a_file_too_large_for_the_usual_parts_goes_in_as_many_as_there_may_be(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        data = bytes(range(251)) * (40 * MIB // 251)
        (tmp_path / "large").write_bytes(data)
        with fault_proxy(lakefs_server.url) as proxy:
            lake = open_lakefs(proxy.url, most_parts=3, part_bytes=5 * MIB)
            upload = Upload(tmp_path / "large", "large", len(data), md5(data))
            lake.upload(lakefs_work.repository, "main", [upload])
            assert proxy.count(r"PUT .*partNumber=") == 3
        commit = lakefs_work.lake.commit(lakefs_work.repository, "main", "m", {})
        assert fetch(open_lakefs(), lakefs_work, commit, tmp_path / "one") == {"large": data}

    def test_a_large_file_that_is_gone_is_refused_by_name(
        self, lakefs: LakeFSLake, lakefs_work: Work, tmp_path: Path
    ) -> None:
        gone = Upload(tmp_path / "gone", "some/path", 20 * MIB, "0" * 32)
        with pytest.raises(LakeError, match=r"some/path.*No such file"):
            lakefs.upload(lakefs_work.repository, "main", [gone])

    def test_one_changed_object_is_one_request(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        with fault_proxy(lakefs_server.url) as proxy:
            upload = lakefs_work.an_upload("a", b"1")
            open_lakefs(proxy.url).upload(lakefs_work.repository, "main", [upload])
            assert [line.split()[0] for line in proxy.seen] == ["PUT"]

    def test_deletes_go_in_batches(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS
    ) -> None:
        objects = {f"f{n}": b"" for n in range(30)}
        lakefs_work.commit("main", objects)
        absent = [f"absent-{n}" for n in range(1500)]
        with fault_proxy(lakefs_server.url) as proxy:
            open_lakefs(proxy.url).delete(lakefs_work.repository, "main", [*absent, *objects])
            assert len(proxy.seen) == 2
        assert lakefs_work.paths("main") == []


class TestEnvironment:
    def test_variables_meant_for_other_servers_change_nothing(
        self, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        foreign = {
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
            "AWS_ACCESS_KEY_ID": "another",
            "AWS_SECRET_ACCESS_KEY": "another",
            "AWS_SESSION_TOKEN": "another",
            "AWS_REGION": "eu-central-1",
            "AWS_PROFILE": "another",
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_S3_EXPRESS": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_CHECKSUM_ALGORITHM": "SHA256",
            "AWS_SERVER_SIDE_ENCRYPTION": "AES256",
            "AWS_WEB_IDENTITY_TOKEN_FILE": "/no/such/file",
            "AWS_ALLOW_HTTP": "false",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "http_proxy": "http://127.0.0.1:9",
        }
        for name, value in foreign.items():
            monkeypatch.setenv(name, value)
        objects = {"small": b"1", "large": bytes(range(256)) * 80_000}
        work = replace(lakefs_work, lake=open_lakefs())
        commit = work.commit("main", objects)
        assert fetch(open_lakefs(), work, commit, tmp_path / "one") == objects


class TestNames:
    def test_names_that_the_s3_library_cannot_say_go_through_the_api(
        self, lakefs: LakeFSLake, lakefs_work: Work, tmp_path: Path
    ) -> None:
        names = ["new\nline", "tab\there", "a//b", "a/./b", "folder/", "end/.."]
        objects = {name: name.encode() for name in names}
        commit = lakefs_work.commit("main", objects)
        assert lakefs_work.paths(commit) == sorted(names, key=str.encode)
        assert fetch(lakefs, lakefs_work, commit, tmp_path / "one") == objects

    def test_a_file_under_such_a_name_is_verified_too(self, lakefs: LakeFSLake, lakefs_work: Work) -> None:
        upload = lakefs_work.an_upload("new\nline", b"seen")
        upload.source.write_bytes(b"Seen")
        with pytest.raises(LakeError, match="changed"):
            lakefs.upload(lakefs_work.repository, "main", [upload])
        assert lakefs_work.paths("main") == []


class TestProgress:
    def test_a_large_download_reports_on_its_way(
        self, lakefs: LakeFSLake, lakefs_work: Work, tmp_path: Path
    ) -> None:
        data = b"x" * 20 * MIB
        commit = lakefs_work.commit("main", {"large": data})
        [entry] = lakefs.list(lakefs_work.repository, commit, "")
        steps: list[tuple[int, int]] = []
        file = Download(entry, tmp_path / "out")
        lakefs.download(lakefs_work.repository, commit, [file], lambda *step: steps.append(step))
        assert len(steps) > 5
        assert tuple(map(sum, zip(*steps, strict=True))) == (1, len(data))


class TestErrors:
    def test_the_first_object_that_fails_for_good_ends_the_download(
        self, lakefs_server: LakefsServer, lakefs_work: Work, open_lakefs: OpenLakeFS, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {f"f{n}": b"1" for n in range(3)})
        missing = [Download(Entry(f"missing-{n}", 1, None), tmp_path / f"out-{n}") for n in range(2000)]
        with fault_proxy(lakefs_server.url) as proxy:
            with pytest.raises(LakeError, match="missing-"):
                open_lakefs(proxy.url).download(lakefs_work.repository, commit, missing)
            assert asked(proxy) < 200

    def test_a_folder_that_is_not_there_is_named(
        self, lakefs: LakeFSLake, lakefs_work: Work, tmp_path: Path
    ) -> None:
        commit = lakefs_work.commit("main", {"a": b"1"})
        [entry] = lakefs.list(lakefs_work.repository, commit, "")
        with pytest.raises(LakeError, match="no-such-folder"):
            lakefs.download(
                lakefs_work.repository, commit, [Download(entry, tmp_path / "no-such-folder/out")]
            )


def asked(proxy: FaultProxy) -> int:
    return proxy.count(OBJECT)
