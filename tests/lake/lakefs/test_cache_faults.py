"""The cache in trouble: full disks, damaged indexes, folders of others, and eyes that are not the owner's."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.lake.lakefs.cache.cache import Cache
from tests.support.faults.disks import no_file_above
from tests.support.worlds.cache_fixture import CacheFixture, key_of, md5

OTHERS = {
    "older": "CREATE TABLE kept (name TEXT PRIMARY KEY, size INTEGER NOT NULL);",
    "before there were versions": """
        CREATE TABLE kept (name TEXT PRIMARY KEY, size INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE sums (name TEXT PRIMARY KEY, crc INTEGER NOT NULL, mtime INTEGER NOT NULL) WITHOUT ROWID;
    """,
    "newer": "CREATE TABLE kept (name, size, used, owner); PRAGMA user_version = 1348796671;",
    "somebody else's": """
        CREATE TABLE "their ""own"" data" (id INTEGER PRIMARY KEY AUTOINCREMENT);
        CREATE VIEW kept AS SELECT 1;
        PRAGMA user_version = 1;
    """,
}


class TestFaults:
    @pytest.mark.parametrize("size", [3_000_000, 5_000_000])
    def test_a_full_disk_under_the_target_is_the_targets_error_and_the_object_stays(
        self, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        cached, data, part = CacheFixture(tmp_path, 10**7), b"x" * size, tmp_path / "part"
        cached.put(data)
        with no_file_above(1_500_000), pytest.raises(OSError, match="File too large"):
            cached.cache.copy_out(key_of(data), str(part))
        assert not part.exists()
        assert "damaged" not in caplog.text
        assert cached.get(data) == data

    @pytest.mark.parametrize("size", [5, 5_000_000])
    def test_an_object_that_cannot_be_read_is_a_miss_and_no_damage(
        self, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * size
        cached.put(data)
        path = cached.path(data)
        path.unlink()
        path.symlink_to("/proc/self/mem")  # opens well, and its first byte is an input/output error
        assert cached.get(data) is None
        assert path.is_symlink()
        assert "damaged" not in caplog.text

    @pytest.mark.parametrize("number", [errno.EIO, errno.EXDEV, errno.EOPNOTSUPP])
    def test_a_large_object_that_the_kernel_cannot_copy_is_copied_by_hand(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        cached, data = CacheFixture(tmp_path, 10**7), b"x" * 5_000_000
        cached.put(data)
        copy, tried = os.copy_file_range, []

        def half(source: int, target: int, _: int) -> int:
            tried.append(target)
            if len(tried) == 1:
                # A part of it is there before it fails.
                return copy(source, target, 1_000_000)
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "copy_file_range", half)
        assert cached.get(data) == data
        assert tried

    def test_a_note_that_does_not_fit_leaves_nothing_half_written(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 10**7)
        cached.cache.save("first", b"makes the index")
        with no_file_above(1_000_000):
            cached.cache.save("large", b"x" * 2_000_000)
        assert [file.name for file in tmp_path.glob("cache/notes/*")] == ["first"]
        assert [file.name for file in tmp_path.glob("cache/notes/.*")] == []

    def test_a_damaged_index_empties_the_cache_which_then_works(self, cached: CacheFixture) -> None:
        cached.put(b"hello")
        (cached.folder / "cache/index.db").write_bytes(
            b"this is no database, and long enough to be sure of it" * 50
        )
        cached.put(b"first after the damage")
        cached.put(b"second after the damage")
        assert cached.get(b"second after the damage") == b"second after the damage"
        assert cached.get(b"hello") is None

    @pytest.mark.parametrize("tables", OTHERS.values(), ids=OTHERS)
    def test_an_index_of_another_version_is_rebuilt_from_the_files(
        self, cached: CacheFixture, tables: str
    ) -> None:
        cached.put(b"hello")
        cached.cache.save("note", b"")
        size = cached.kept_bytes()
        cached.cache.close()
        index = cached.folder / "cache/index.db"
        index.unlink()
        with closing(sqlite3.connect(index)) as other:
            other.executescript(tables)

        cached.cache = Cache(cached.folder / "cache", size + 20)
        cached.put(b"first after it")

        assert cached.get(b"hello") == b"hello"
        assert cached.cache.used_bytes() == cached.kept_bytes() == size + 14
        cached.put(b"second after it")
        assert cached.cache.used_bytes() == cached.kept_bytes() <= size + 20
        assert cached.get(b"hello") is None, "what was found again is thrown out like the rest"

    def test_an_index_of_this_version_is_not_rebuilt(self, cached: CacheFixture) -> None:
        cached.put(b"hello")
        cached.cache.close()
        cached.path(b"hello").unlink()
        assert Cache(cached.folder / "cache", 10**6).used_bytes() == 5

    def test_objects_of_a_version_that_did_not_know_repositories_are_dropped_and_the_rest_stays(
        self, cached: CacheFixture
    ) -> None:
        cached.put(b"hello")
        cached.cache.save("note", b"")
        cached.cache.close()
        old = cached.path(b"hello").with_name(f"{md5(b'hello')}-5")
        old.write_bytes(b"hello")
        with closing(sqlite3.connect(cached.folder / "cache/index.db")) as index:
            index.execute("INSERT INTO kept VALUES (?, 5, 0)", (old.name,))
            index.execute(f"PRAGMA user_version = {0x5065_0001}")
            index.commit()

        cached.cache = Cache(cached.folder / "cache", 10**6)

        assert cached.cache.used_bytes() == cached.kept_bytes()
        assert not old.exists()
        assert cached.get(b"hello") == b"hello"

    def test_a_folder_that_cannot_be_made_is_no_error(self, tmp_path: Path) -> None:
        (tmp_path / "cache").write_bytes(b"a file is in the way")
        cached = CacheFixture(tmp_path)
        cached.put(b"hello")
        assert cached.get(b"hello") is None

    def test_the_cache_waits_for_another_process_at_the_index(self, cached: CacheFixture) -> None:
        cached.put(b"hello")
        with sqlite3.connect(cached.folder / "cache/index.db") as other:
            assert other.execute("SELECT count(*) FROM kept").fetchone() == (1,)
            cached.put(b"world")
        other.close()
        assert cached.cache.present([key_of(b"world").name]) == {key_of(b"world").name}


class TestPrivacy:
    @pytest.fixture(params=[0o000, 0o022, 0o277])
    def umask(self, request: pytest.FixtureRequest) -> Iterator[int]:
        before = os.umask(request.param)
        yield request.param
        os.umask(before)

    @pytest.mark.usefixtures("umask")
    def test_only_the_owner_can_read_the_cache(self, tmp_path: Path) -> None:
        cached = CacheFixture(tmp_path, 10**7)
        cached.put(b"hello")
        cached.put(b"x" * 5_000_000)
        cached.cache.save("note", b"text")
        assert cached.get(b"hello") == b"hello"
        assert open_to_others(tmp_path / "cache") == []
        assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
        assert open_to_others(tmp_path / "part-2") == []

    def test_a_cache_that_was_open_before_is_closed(self, tmp_path: Path) -> None:
        before = CacheFixture(tmp_path)
        before.put(b"hello")
        for folder in (tmp_path / "cache", tmp_path / "cache/objects", tmp_path / "cache/notes"):
            folder.chmod(0o755)
        (tmp_path / "cache/index.db").chmod(0o644)
        before.cache.close()
        after = CacheFixture(tmp_path)
        after.cache.touch([key_of(b"hello").name])
        assert after.get(b"hello") == b"hello"
        assert open_to_others(tmp_path / "cache") == []

    def test_a_folder_that_holds_other_things_keeps_its_mode_and_what_is_ours_in_it_is_closed(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "cache"
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "somebody's.txt").touch()
        CacheFixture(tmp_path).put(b"hello")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        assert open_to_others(folder / "objects", folder / "notes", folder / "index.db") == []


def open_to_others(*places: Path) -> list[str]:
    """Return the paths below these that others than the owner may use."""
    found = [path for place in places for path in (place, *place.rglob("*"))]
    return [str(path) for path in found if path.stat().st_mode & 0o077]
