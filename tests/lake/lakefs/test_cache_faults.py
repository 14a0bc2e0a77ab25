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


class TestTrouble:
    @pytest.mark.parametrize("size", [3_000_000, 5_000_000])
    def test_a_full_disk_under_the_target_is_the_targets_error_and_the_object_stays(
        self, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept, data, part = CacheFixture(tmp_path, 10**7), b"x" * size, tmp_path / "part"
        kept.put(data)
        with no_file_above(1_500_000), pytest.raises(OSError, match="File too large"):
            kept.cache.copy_out(key_of(data), str(part))
        assert not part.exists()
        assert "damaged" not in caplog.text
        assert kept.get(data) == data

    @pytest.mark.parametrize("size", [5, 5_000_000])
    def test_an_object_that_cannot_be_read_is_a_miss_and_no_damage(
        self, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept, data = CacheFixture(tmp_path, 10**7), b"x" * size
        kept.put(data)
        path = kept.path(data)
        path.unlink()
        path.symlink_to("/proc/self/mem")  # opens well, and its first byte is an input/output error
        assert kept.get(data) is None
        assert path.is_symlink()
        assert "damaged" not in caplog.text

    @pytest.mark.parametrize("number", [errno.EIO, errno.EXDEV, errno.EOPNOTSUPP])
    def test_a_large_object_that_the_kernel_cannot_copy_is_copied_by_hand(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        kept, data = CacheFixture(tmp_path, 10**7), b"x" * 5_000_000
        kept.put(data)
        copy, tried = os.copy_file_range, []

        def half(source: int, target: int, _: int) -> int:
            tried.append(target)
            if len(tried) == 1:
                # A part of it is there before it fails.
                return copy(source, target, 1_000_000)
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "copy_file_range", half)
        assert kept.get(data) == data
        assert tried

    def test_a_note_that_does_not_fit_leaves_nothing_half_written(self, tmp_path: Path) -> None:
        kept = CacheFixture(tmp_path, 10**7)
        kept.cache.save("first", b"makes the index")
        with no_file_above(1_000_000):
            kept.cache.save("large", b"x" * 2_000_000)
        assert [file.name for file in tmp_path.glob("cache/notes/*")] == ["first"]
        assert [file.name for file in tmp_path.glob("cache/notes/.*")] == []

    def test_a_damaged_index_empties_the_cache_which_then_works(self, kept: CacheFixture) -> None:
        kept.put(b"hello")
        (kept.folder / "cache/index.db").write_bytes(
            b"this is no database, and long enough to be sure of it" * 50
        )
        kept.put(b"first after the damage")
        kept.put(b"second after the damage")
        assert kept.get(b"second after the damage") == b"second after the damage"
        assert kept.get(b"hello") is None

    @pytest.mark.parametrize("tables", OTHERS.values(), ids=OTHERS)
    def test_an_index_of_another_version_is_rebuilt_from_the_files(
        self, kept: CacheFixture, tables: str
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

    def test_an_index_of_this_version_is_not_rebuilt(self, kept: CacheFixture) -> None:
        kept.put(b"hello")
        kept.cache.close()
        kept.path(b"hello").unlink()
        assert Cache(kept.folder / "cache", 10**6).used_bytes() == 5

    def test_objects_of_a_version_that_did_not_know_repositories_are_dropped_and_the_rest_stays(
        self, kept: CacheFixture
    ) -> None:
        kept.put(b"hello")
        kept.cache.save("note", b"")
        kept.cache.close()
        old = kept.path(b"hello").with_name(f"{md5(b'hello')}-5")
        old.write_bytes(b"hello")
        with closing(sqlite3.connect(kept.folder / "cache/index.db")) as index:
            index.execute("INSERT INTO kept VALUES (?, 5, 0)", (old.name,))
            index.execute(f"PRAGMA user_version = {0x5065_0001}")
            index.commit()

        kept.cache = Cache(kept.folder / "cache", 10**6)

        assert kept.cache.used_bytes() == kept.kept_bytes()
        assert not old.exists()
        assert kept.get(b"hello") == b"hello"

    def test_a_folder_that_cannot_be_made_is_no_error(self, tmp_path: Path) -> None:
        (tmp_path / "cache").write_bytes(b"a file is in the way")
        kept = CacheFixture(tmp_path)
        kept.put(b"hello")
        assert kept.get(b"hello") is None

    def test_the_cache_waits_for_another_process_at_the_index(self, kept: CacheFixture) -> None:
        kept.put(b"hello")
        with sqlite3.connect(kept.folder / "cache/index.db") as other:
            assert other.execute("SELECT count(*) FROM kept").fetchone() == (1,)
            kept.put(b"world")
        other.close()
        assert kept.cache.present([key_of(b"world").name]) == {key_of(b"world").name}


class TestPrivacy:
    @pytest.fixture(params=[0o000, 0o022, 0o277])
    def umask(self, request: pytest.FixtureRequest) -> Iterator[int]:
        before = os.umask(request.param)
        yield request.param
        os.umask(before)

    @pytest.mark.usefixtures("umask")
    def test_only_the_owner_can_read_the_cache(self, tmp_path: Path) -> None:
        kept = CacheFixture(tmp_path, 10**7)
        kept.put(b"hello")
        kept.put(b"x" * 5_000_000)
        kept.cache.save("note", b"text")
        assert kept.get(b"hello") == b"hello"
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
