"""The content cache: what comes out is what went in, the whole stays small, and many may use it at once."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.lake.lakefs.cache.cache import Cache, object_name
from perago.lake.lakefs.cache.files import create
from tests.support.disks import no_file_above


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Kept:
    """A cache with a clock of its own, and the few moves of these tests."""

    def __init__(self, folder: Path, limit: int = 10**6) -> None:
        self.folder = folder
        self.ticks = itertools.count(1)
        self.cache = Cache(folder / "cache", limit, clock=lambda: next(self.ticks))
        self.names = itertools.count()

    def put(self, data: bytes) -> str:
        """Keep bytes as a download would."""
        name = object_name(md5(data), len(data))
        file = self.folder / f"file-{next(self.names)}"
        with open(create(str(file)), "wb") as download:
            download.write(data)
        if name in self.cache.reserve({name: len(data)}):
            self.cache.put_in(md5(data), len(data), str(file), zlib.crc32(data))
            self.cache.settle([name])
        return name

    def get(self, data: bytes) -> bytes | None:
        """What the cache gives for these bytes' checksum."""
        part = self.folder / f"part-{next(self.names)}"
        if not self.cache.copy_out(md5(data), len(data), str(part)):
            assert not part.exists()
            return None
        return part.read_bytes()

    def path(self, data: bytes) -> Path:
        """Where these bytes are kept."""
        [found] = self.folder.glob(f"cache/objects/*/{md5(data)}-{len(data)}")
        return found

    def kept_bytes(self) -> int:
        """What the folder really holds, the index aside."""
        files = [*self.folder.glob("cache/objects/*/*"), *self.folder.glob("cache/notes/*")]
        return sum(file.stat().st_size for file in files)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


class TestObjects:
    @pytest.mark.parametrize("data", [b"", b"hello", b"x" * 3_000_000])
    def test_what_went_in_comes_out(self, tmp_path: Path, data: bytes) -> None:
        kept = Kept(tmp_path, 10**7)
        kept.put(data)
        assert kept.get(data) == data

    def test_what_never_went_in_does_not_come_out(self, kept: Kept) -> None:
        assert kept.get(b"hello") is None

    @pytest.mark.parametrize("at", [0, 5, 9_999])
    @pytest.mark.parametrize("size", [10_000, 5_000_000])
    def test_a_flipped_byte_is_noticed_and_the_object_is_dropped(
        self, tmp_path: Path, size: int, at: int
    ) -> None:
        kept, data = Kept(tmp_path, 10**7), b"x" * size
        kept.put(data)
        damaged = bytearray(data)
        damaged[at] ^= 1
        before = kept.path(data).stat()
        kept.path(data).write_bytes(damaged)
        os.utime(kept.path(data), ns=(before.st_atime_ns, before.st_mtime_ns))
        assert kept.get(data) is None
        assert not list(kept.folder.glob("cache/objects/*/*"))

    @pytest.mark.parametrize("change", [b"", b"x" * 9_999, b"x" * 10_001])
    def test_an_object_cut_short_or_grown_is_noticed(self, kept: Kept, change: bytes) -> None:
        data = b"x" * 10_000
        kept.put(data)
        kept.path(data).write_bytes(change)
        assert kept.get(data) is None

    def test_a_large_object_that_was_written_in_place_is_checked_by_its_md5(self, tmp_path: Path) -> None:
        kept, data = Kept(tmp_path, 10**7), b"x" * 5_000_000
        kept.put(data)
        file, other = kept.path(data), b"y" + data[1:]
        file.write_bytes(other)
        # Even if the new bytes had the CRC of the old ones.
        kept.cache._change(lambda db: db.execute("UPDATE sums SET crc = ?", (zlib.crc32(other),)))
        os.utime(file, ns=(0, 0))
        assert kept.get(data) is None

    def test_a_large_object_whose_crc_nobody_noted_comes_out_by_its_md5(self, tmp_path: Path) -> None:
        kept, data = Kept(tmp_path, 10**7), b"x" * 5_000_000
        kept.put(data)
        kept.cache._change(lambda db: db.execute("DELETE FROM sums"))
        assert kept.get(data) == data

    def test_a_dropped_object_can_be_kept_again(self, kept: Kept) -> None:
        kept.put(b"hello")
        kept.path(b"hello").write_bytes(b"jello")
        assert kept.get(b"hello") is None
        kept.put(b"hello")
        assert kept.get(b"hello") == b"hello"

    def test_writing_into_the_file_that_filled_the_cache_spoils_no_result(self, kept: Kept) -> None:
        kept.put(b"hello")
        (kept.folder / "file-0").write_bytes(b"jello")
        assert kept.get(b"hello") in (None, b"hello")

    def test_writing_into_what_came_out_does_not_reach_the_cache(self, kept: Kept) -> None:
        kept.put(b"hello")
        (kept.folder / "file-0").unlink()
        part = kept.folder / "mine"
        assert kept.cache.copy_out(md5(b"hello"), 5, str(part))
        part.write_bytes(b"jello")
        assert kept.get(b"hello") == b"hello"


class TestBound:
    def test_the_least_recently_used_goes_first(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 350)
        one, two, three, four = (bytes([n]) * 100 for n in range(4))
        for data in (one, two, three):
            kept.put(data)
        kept.cache.touch([object_name(md5(one), 100)])
        kept.put(four)
        assert kept.get(two) is None
        assert [kept.get(data) for data in (one, three, four)] == [one, three, four]

    def test_the_whole_never_grows_beyond_the_bound(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 1000)
        for number in range(50):
            kept.put(b"%03d" % number * (1 + number % 60))
            assert kept.kept_bytes() <= 1000
        assert kept.cache.used_bytes() <= 1000

    def test_what_is_larger_than_the_bound_is_not_kept_and_throws_nothing_out(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 100)
        kept.put(b"small")
        kept.put(b"x" * 101)
        assert kept.get(b"small") == b"small"
        assert kept.get(b"x" * 101) is None

    def test_of_a_batch_that_does_not_fit_a_part_is_kept(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 100)
        admitted = kept.cache.reserve({f"{n:032x}-40": 40 for n in range(5)})
        assert len(admitted) == 2

    def test_a_bound_of_zero_keeps_nothing_and_makes_no_folder(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 0)
        kept.put(b"hello")
        kept.cache.save("note", b"text")
        assert not kept.cache.enabled
        assert kept.get(b"hello") is None
        assert kept.cache.load("note") is None
        assert not (tmp_path / "cache").exists()

    def test_what_others_threw_out_before_it_was_written_does_not_stay(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 100)
        name, file = object_name(md5(b"slow"), 4), tmp_path / "slow"
        file.write_bytes(b"slow")
        assert kept.cache.reserve({name: 4}) == {name}
        kept.put(b"x" * 100)
        kept.cache.put_in(md5(b"slow"), 4, str(file))
        kept.cache.settle([name])
        assert kept.kept_bytes() == 100


class TestNotes:
    def test_a_note_comes_back_and_may_be_replaced(self, kept: Kept) -> None:
        assert kept.cache.load("a") is None
        kept.cache.save("a", b"first\nline")
        assert kept.cache.load("a") == b"first\nline"
        kept.cache.save("a", b"second")
        assert kept.cache.load("a") == b"second"

    @pytest.mark.parametrize("damage", [b"", b"short", b"0" * 64 + b"\nfirst"])
    def test_a_damaged_note_is_no_note(self, kept: Kept, damage: bytes) -> None:
        kept.cache.save("a", b"first")
        (kept.folder / "cache/notes/a").write_bytes(damage)
        assert kept.cache.load("a") is None
        assert not (kept.folder / "cache/notes/a").exists()

    def test_notes_count_and_go_like_objects(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 200)
        kept.cache.save("a", b"x" * 50)
        kept.cache.save("b", b"x" * 100)
        assert kept.cache.load("a") is None
        assert kept.cache.load("b") == b"x" * 100


OTHERS = {
    "older": "CREATE TABLE kept (name TEXT PRIMARY KEY, size INTEGER NOT NULL);",
    "before there were versions": """
        CREATE TABLE kept (name TEXT PRIMARY KEY, size INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE sums (name TEXT PRIMARY KEY, crc INTEGER NOT NULL, mtime INTEGER NOT NULL) WITHOUT ROWID;
    """,
    "newer": "CREATE TABLE kept (name, size, used, owner); PRAGMA user_version = 1348796418;",
    "somebody else's": """
        CREATE TABLE "their ""own"" data" (id INTEGER PRIMARY KEY AUTOINCREMENT);
        CREATE VIEW kept AS SELECT 1;
        PRAGMA user_version = 1;
    """,
}


class TestTrouble:
    @pytest.mark.parametrize("size", [3_000_000, 5_000_000])
    def test_a_full_disk_under_the_target_is_the_targets_error_and_the_object_stays(
        self, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept, data, part = Kept(tmp_path, 10**7), b"x" * size, tmp_path / "part"
        kept.put(data)
        with no_file_above(1_500_000), pytest.raises(OSError, match="File too large"):
            kept.cache.copy_out(md5(data), size, str(part))
        assert not part.exists()
        assert "damaged" not in caplog.text
        assert kept.get(data) == data

    def test_an_object_that_cannot_be_read_is_a_miss_and_no_damage(
        self, kept: Kept, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept.put(b"hello")
        path = kept.path(b"hello")
        path.unlink()
        path.symlink_to("/proc/self/mem")  # opens well, and its first byte is an input/output error
        assert kept.get(b"hello") is None
        assert path.is_symlink()
        assert "damaged" not in caplog.text

    def test_a_note_that_does_not_fit_leaves_nothing_half_written(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 10**7)
        kept.cache.save("first", b"makes the index")
        with no_file_above(1_000_000):
            kept.cache.save("large", b"x" * 2_000_000)
        assert [file.name for file in tmp_path.glob("cache/notes/*")] == ["first"]
        assert [file.name for file in tmp_path.glob("cache/notes/.*")] == []

    def test_a_damaged_index_empties_the_cache_which_then_works(self, kept: Kept) -> None:
        kept.put(b"hello")
        (kept.folder / "cache/index.db").write_bytes(
            b"this is no database, and long enough to be sure of it" * 50
        )
        kept.put(b"first after the damage")
        kept.put(b"second after the damage")
        assert kept.get(b"second after the damage") == b"second after the damage"
        assert kept.get(b"hello") is None

    @pytest.mark.parametrize("tables", OTHERS.values(), ids=OTHERS)
    def test_an_index_of_another_version_is_made_anew_from_what_is_there(
        self, kept: Kept, tables: str
    ) -> None:
        kept.put(b"hello")
        kept.cache.save("note", b"")
        size = kept.kept_bytes()
        kept.cache.close()
        index = kept.folder / "cache/index.db"
        index.unlink()
        with closing(sqlite3.connect(index)) as other:
            other.executescript(tables)

        kept.cache = Cache(kept.folder / "cache", size + 20)
        kept.put(b"first after it")

        assert kept.get(b"hello") == b"hello"
        assert kept.cache.used_bytes() == kept.kept_bytes() == size + 14
        kept.put(b"second after it")
        assert kept.cache.used_bytes() == kept.kept_bytes() <= size + 20
        assert kept.get(b"hello") is None, "what was found again is thrown out like the rest"

    def test_an_index_of_this_version_is_not_made_anew(self, kept: Kept) -> None:
        kept.put(b"hello")
        kept.cache.close()
        kept.path(b"hello").unlink()
        assert Cache(kept.folder / "cache", 10**6).used_bytes() == 5

    def test_a_folder_that_cannot_be_made_is_no_error(self, tmp_path: Path) -> None:
        (tmp_path / "cache").write_bytes(b"a file is in the way")
        kept = Kept(tmp_path)
        kept.put(b"hello")
        assert kept.get(b"hello") is None

    def test_another_process_at_the_index_is_waited_for(self, kept: Kept) -> None:
        kept.put(b"hello")
        with sqlite3.connect(kept.folder / "cache/index.db") as other:
            assert other.execute("SELECT count(*) FROM kept").fetchone() == (1,)
            kept.put(b"world")
        other.close()
        assert kept.cache.present([object_name(md5(b"world"), 5)]) == {object_name(md5(b"world"), 5)}


class TestPrivacy:
    @pytest.fixture(params=[0o000, 0o022, 0o277])
    def umask(self, request: pytest.FixtureRequest) -> Iterator[int]:
        before = os.umask(request.param)
        yield request.param
        os.umask(before)

    @pytest.mark.usefixtures("umask")
    def test_nobody_but_the_owner_can_read_anything(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path, 10**7)
        kept.put(b"hello")
        kept.put(b"x" * 5_000_000)
        kept.cache.save("note", b"text")
        assert kept.get(b"hello") == b"hello"
        assert open_to_others(tmp_path / "cache") == []
        assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
        assert open_to_others(tmp_path / "part-2") == []

    def test_a_cache_that_was_open_before_is_closed(self, tmp_path: Path) -> None:
        before = Kept(tmp_path)
        before.put(b"hello")
        for folder in (tmp_path / "cache", tmp_path / "cache/objects", tmp_path / "cache/notes"):
            folder.chmod(0o755)
        (tmp_path / "cache/index.db").chmod(0o644)
        before.cache.close()
        after = Kept(tmp_path)
        after.cache.touch([object_name(md5(b"hello"), 5)])
        assert after.get(b"hello") == b"hello"
        assert open_to_others(tmp_path / "cache") == []

    def test_a_folder_that_holds_other_things_keeps_its_mode_and_what_is_ours_in_it_is_closed(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "cache"
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "somebody's.txt").touch()
        Kept(tmp_path).put(b"hello")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        assert open_to_others(folder / "objects", folder / "notes", folder / "index.db") == []


def open_to_others(*places: Path) -> list[str]:
    """What below these others than the owner may use."""
    found = [path for place in places for path in (place, *place.rglob("*"))]
    return [str(path) for path in found if path.stat().st_mode & 0o077]


def _use(folder: Path, seed: int, wrong: list[str]) -> None:
    cache = Cache(folder / "cache", 40_000)
    for turn in range(150):
        data = b"%d" % ((turn * 7 + seed * 3) % 40) * 700
        name, part = object_name(md5(data), len(data)), folder / f"{seed}-{turn}"
        if cache.copy_out(md5(data), len(data), str(part)):
            if part.read_bytes() != data:
                wrong.append(name)
            cache.touch([name])
        else:
            part.write_bytes(data)
            if name in cache.reserve({name: len(data)}):
                cache.put_in(md5(data), len(data), str(part))
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
