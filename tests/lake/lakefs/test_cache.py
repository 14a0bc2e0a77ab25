"""The content cache: what comes out is what went in, the whole stays small, and many may use it at once."""

from __future__ import annotations

import logging
import multiprocessing
import os
import zlib
from pathlib import Path

import pytest

from perago.lake.file_copy import try_clone
from perago.lake.lakefs.cache.cache import Cache
from tests.support.faults.deferred_downloads import DeferringDownloads, ScriptedSource, an_entry
from tests.support.worlds.cache_fixture import COLLIDING, CacheFixture, key_of


class TestObjects:
    @pytest.mark.parametrize("data", [b"", b"hello", b"x" * 3_000_000])
    def test_a_cached_object_comes_back(self, tmp_path: Path, data: bytes) -> None:
        cached = CacheFixture(tmp_path, 10**7)
        cached.put(data)
        assert cached.get(data) == data

    def test_an_object_that_was_never_cached_is_not_found(self, cached: CacheFixture) -> None:
        assert cached.get(b"hello") is None

    @pytest.mark.parametrize("at", [0, 5, 9_999])
    @pytest.mark.parametrize("size", [10_000, 5_000_000])
    def test_a_flipped_byte_is_noticed_and_the_object_is_dropped(
        self, tmp_path: Path, size: int, at: int
    ) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * size
        cached.put(data)
        damaged = bytearray(data)
        damaged[at] ^= 1
        before = cached.path(data).stat()
        cached.path(data).write_bytes(damaged)
        os.utime(cached.path(data), ns=(before.st_atime_ns, before.st_mtime_ns))
        assert cached.get(data) is None
        assert not list(cached.folder.glob("cache/objects/*/*"))

    @pytest.mark.parametrize("change", [b"", b"x" * 9_999, b"x" * 10_001])
    def test_an_object_cut_short_or_grown_is_noticed(self, cached: CacheFixture, change: bytes) -> None:
        data = b"x" * 10_000
        cached.put(data)
        cached.path(data).write_bytes(change)
        assert cached.get(data) is None

    def test_a_large_object_that_was_written_in_place_is_checked_by_its_md5(self, tmp_path: Path) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * 5_000_000
        cached.put(data)
        file, other = cached.path(data), b"y" + data[1:]
        file.write_bytes(other)
        # Even if the new bytes had the CRC of the old ones.
        cached.cache._change(lambda db: db.execute("UPDATE sums SET crc = ?", (zlib.crc32(other),)))
        os.utime(file, ns=(0, 0))
        assert cached.get(data) is None

    def test_a_large_object_whose_crc_nobody_noted_comes_out_by_its_md5(self, tmp_path: Path) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * 5_000_000
        cached.put(data)
        cached.cache._change(lambda db: db.execute("DELETE FROM sums"))
        assert cached.get(data) == data

    def test_a_dropped_object_can_be_kept_again(self, cached: CacheFixture) -> None:
        cached.put(b"hello")
        cached.path(b"hello").write_bytes(b"jello")
        assert cached.get(b"hello") is None
        cached.put(b"hello")
        assert cached.get(b"hello") == b"hello"

    def test_writing_into_the_file_that_filled_the_cache_spoils_no_result(self, cached: CacheFixture) -> None:
        cached.put(b"hello")
        (cached.folder / "file-0").write_bytes(b"jello")
        assert cached.get(b"hello") in (None, b"hello")

    def test_writing_into_what_came_out_does_not_reach_the_cache(self, cached: CacheFixture) -> None:
        cached.put(b"hello")
        (cached.folder / "file-0").unlink()
        part = cached.folder / "mine"
        assert cached.cache.copy_out(key_of(b"hello"), str(part))
        part.write_bytes(b"jello")
        assert cached.get(b"hello") == b"hello"


class TestBound:
    def test_the_least_recently_used_goes_first(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 350)
        one, two, three, four = (bytes([n]) * 100 for n in range(4))
        for data in (one, two, three):
            cached.put(data)
        cached.cache.touch([key_of(one).name])
        cached.put(four)
        assert cached.get(two) is None
        assert [cached.get(data) for data in (one, three, four)] == [one, three, four]

    def test_the_whole_never_grows_beyond_the_bound(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 1000)
        for number in range(50):
            cached.put(b"%03d" % number * (1 + number % 60))
            assert cached.kept_bytes() <= 1000
        assert cached.cache.used_bytes() <= 1000

    def test_an_object_larger_than_the_bound_is_not_cached_and_evicts_nothing(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 100)
        cached.put(b"small")
        cached.put(b"x" * 101)
        assert cached.get(b"small") == b"small"
        assert cached.get(b"x" * 101) is None

    def test_a_part_of_a_batch_that_does_not_fit_is_cached(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 100)
        admitted = cached.cache.reserve({f"{n:032x}-40": 40 for n in range(5)})
        assert len(admitted) == 2

    def test_a_bound_of_zero_keeps_nothing_and_makes_no_folder(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 0)
        cached.put(b"hello")
        cached.cache.save("note", b"text")
        assert not cached.cache.enabled
        assert cached.get(b"hello") is None
        assert cached.cache.load("note") is None
        assert not (tmp_path / "cache").exists()

    def test_an_object_evicted_before_it_was_written_does_not_stay(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 100)
        name, file = key_of(b"slow").name, tmp_path / "slow"
        file.write_bytes(b"slow")
        assert cached.cache.reserve({name: 4}) == {name}
        cached.put(b"x" * 100)
        cached.cache.put_in(key_of(b"slow"), str(file))
        cached.cache.settle([name])
        assert cached.kept_bytes() == 100


class TestNotes:
    def test_a_note_comes_back_and_may_be_replaced(self, cached: CacheFixture) -> None:
        assert cached.cache.load("a") is None
        cached.cache.save("a", b"first\nline")
        assert cached.cache.load("a") == b"first\nline"
        cached.cache.save("a", b"second")
        assert cached.cache.load("a") == b"second"

    @pytest.mark.parametrize("damage", [b"", b"short", b"0" * 64 + b"\nfirst"])
    def test_a_damaged_note_is_no_note(self, cached: CacheFixture, damage: bytes) -> None:
        cached.cache.save("a", b"first")
        (cached.folder / "cache/notes/a").write_bytes(damage)
        assert cached.cache.load("a") is None
        assert not (cached.folder / "cache/notes/a").exists()

    def test_notes_count_and_go_like_objects(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 200)
        cached.cache.save("a", b"x" * 50)
        cached.cache.save("b", b"x" * 100)
        assert cached.cache.load("a") is None
        assert cached.cache.load("b") == b"x" * 100


class TestBodies:
    """A body that writes into a downloaded file is at its normal work."""

    @staticmethod
    def write_into(file: Path) -> None:
        before = file.stat().st_mtime_ns
        with open(file, "r+b") as body:
            body.write(b"the body was here")
        # Later than the download by more than a tick of the clock, as every body is.
        os.utime(file, ns=(before + 10**9, before + 10**9))

    @pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
    @pytest.mark.parametrize("size", [500, 200_000, 1_000_000, 5_000_000])
    def test_a_body_that_edits_its_file_damages_no_small_cached_object(
        self, tmp_path: Path, size: int, few: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * size
        cached.put(data, few=few)
        self.write_into(tmp_path / "file-0")

        found = cached.get(data)

        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
        assert found in (data, None)
        assert found == data or size > 256 * 1024 or not few
        cached.put(data)
        assert cached.get(data) == data

    @pytest.mark.parametrize("size", [500, 1_000_000, 5_000_000])
    def test_bytes_that_changed_without_a_write_are_damage(
        self, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * size
        cached.put(data)
        file = cached.path(data)
        before = file.stat()
        with open(file, "r+b") as disk:
            disk.write(b"y")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

        assert cached.get(data) is None

        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "is damaged, dropped it" in caplog.text

    def test_large_objects_take_no_room_twice(self, tmp_path: Path) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * 5_000_000
        cached.put(data)
        file, cached = (tmp_path / "file-0").stat(), cached.path(data).stat()

        # On a file system with clones they are two files that share their blocks.
        assert file.st_ino == cached.st_ino or clones(tmp_path)


def clones(folder: Path) -> bool:
    with open(folder / "one", "wb+") as one, open(folder / "two", "wb+") as two:
        one.write(b"x" * 10_000)
        one.flush()
        return try_clone(one.fileno(), two.fileno())


class TestRepositories:
    @pytest.mark.parametrize(
        ("url", "repository", "transfers"),
        [
            ("http://here", "repo", 0),
            ("http://here", "another", 1),
            ("http://there", "repo", 1),
        ],
    )
    def test_an_object_of_one_repository_is_not_served_for_another(
        self, tmp_path: Path, url: str, repository: str, transfers: int
    ) -> None:
        theirs, ours = COLLIDING
        first = DeferringDownloads(tmp_path)
        first.download(ScriptedSource(theirs), an_entry(theirs))
        first.cache.close()

        source = ScriptedSource(ours)
        [file], _ = DeferringDownloads(tmp_path, url=url, repository=repository).download(
            source, an_entry(ours)
        )

        assert source.count == transfers
        assert file.read_bytes() == (ours if transfers else theirs)

    def test_nor_is_what_was_noted_of_a_checksum_that_is_no_md5(self, tmp_path: Path) -> None:
        first = DeferringDownloads(tmp_path)
        first.download(ScriptedSource(b"theirs"), an_entry(b"theirs", "0" * 32 + "-2"))
        first.cache.close()

        source = ScriptedSource(b"ours!!")
        other = DeferringDownloads(tmp_path, repository="another")
        other.download(ScriptedSource(b"theirs"), an_entry(b"theirs", path="same bytes"))
        [file], _ = other.download(source, an_entry(b"ours!!", "0" * 32 + "-2"))

        assert file.read_bytes() == b"ours!!"


def _use(folder: Path, seed: int, wrong: list[str]) -> None:
    cache = Cache(folder / "cache", 40_000)
    for turn in range(150):
        data = b"%d" % ((turn * 7 + seed * 3) % 40) * 700
        name, part = key_of(data).name, folder / f"{seed}-{turn}"
        if cache.copy_out(key_of(data), str(part)):
            if part.read_bytes() != data:
                wrong.append(name)
            cache.touch([name])
        else:
            part.write_bytes(data)
            if name in cache.reserve({name: len(data)}):
                cache.put_in(key_of(data), str(part))
                cache.settle([name])
        part.unlink()


@pytest.mark.slow
def test_processes_share_one_folder_and_never_get_wrong_bytes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        wrong = manager.list()
        users = [context.Process(target=_use, args=(tmp_path, seed, wrong)) for seed in range(4)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert [user.exitcode for user in users] == [0] * 4
        assert list(wrong) == []
    left = [file.stat().st_size for file in tmp_path.glob("cache/objects/*/*")]
    assert sum(left) <= 40_000
    assert left
