"""The content cache: objects by repository and MD5, and small notes (such as listings), in one folder.

    objects/ab/<md5>-<size>-<repository>    an object's bytes; <repository> is a hash of its server and name
    notes/<name>                            a checksum of the rest, then the rest
    index.db                                names, sizes and times of last use (SQLite)

The rules:

- Only the owner of the folder can read any of it.
- An object that came from one repository is never returned for another.  An MD5 proves that bytes were not damaged, not
  that they are the right ones: anyone can create two files with the same MD5.
- An object is hashed when it is copied out, so a flipped byte or a truncated file is a cache miss, never a result.
- The total size stays below a limit.  The least recently used objects are evicted first.
- Any number of threads and processes can share the folder.
- The cache never makes a transfer fail: an error in the cache is a miss.
- Only bytes that were read completely and do not match count as damage.  A disk that fills up while an object is being
  copied out is not damage to the object.

Larger files are cloned into the cache if the file system supports it, and small ones are copied if there are only a
few.  All others are hard-linked, so filling the cache costs almost nothing.  A body that writes to a linked file in
place changes the cached object.  The next check detects this and drops the object, without reporting damage because the
mtime has changed.  Objects are always copied out, so the change does not spread.

As long as the mtime of its file is unchanged, a large object is checked by CRC, which takes a fifth of the time of an
MD5.  Otherwise it is checked by MD5.  An object that was not verified when it was added has no CRC until
`mark_verified` is called.  If it is copied out before that, or if the process died before that, it is hashed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from perago.lake.lakefs.cache.files import (
    ByCrc,
    ByMd5,
    Check,
    KnownCrc,
    Unreadable,
    UnverifiedCopy,
    add_file,
    copy_checked,
    copy_unverified,
    create,
    files_in,
    is_whole,
    make_private,
    remove,
    restrict_to_owner,
)
from perago.lake.lakefs.cache.index import Index

T = TypeVar("T")

_LARGE = 4 * 1024 * 1024
"""Below this size, looking up the CRC costs as much as it saves."""
_OBJECT = re.compile(r"[0-9a-f]{32}-[0-9]+-[0-9a-f]{32}")
"""Matches the file name of a cached object.  In caches of older versions, the name ended after the size."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The key of a cached object: its MD5, its size, and the `repository_id` of the repository that it came from."""

    repository: str
    checksum: str
    size: int

    @property
    def name(self) -> str:
        """The object's file name in the cache."""
        return f"{self.checksum}-{self.size}-{self.repository}"


def repository_id(endpoint: str, repository: str) -> str:
    """Return the part of a cached object's name that identifies its server and repository."""
    return hashlib.sha256(f"{endpoint}\n{repository}".encode()).hexdigest()[:32]


class Cache:
    """A cache of objects and notes in one folder, with a size limit. A limit of 0 disables the cache."""

    def __init__(self, folder: Path, limit: int, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._folder = folder
        self._objects = folder / "objects"
        self._notes = folder / "notes"
        self._index = Index(folder / "index.db", self._files)
        self._limit = limit
        self._clock = clock
        self._ready = False
        self._new_sums: dict[str, tuple[int | None, int]] = {}

    def close(self) -> None:
        """Close the index. The next use reopens it."""
        self._index.close()

    @property
    def enabled(self) -> bool:
        """True if the size limit is above 0."""
        return self._limit > 0

    def copy_out(self, key: ObjectKey, part: str) -> bool:
        """Copy a cached object to the new file `part`. Returns False, leaving no file, if it is missing or damaged.

        Raises `OSError` if `part` cannot be written.
        """
        path = self._object_path(key.name)
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        whole = False
        try:
            whole = copy_checked(source, key.size, part, self._check_for(source, key))
            if not whole:
                self._drop_changed(key, source, path)
        except Unreadable as error:
            _log.warning("cannot read cached object %s: %s", path, error)
        finally:
            os.close(source)
            if not whole:
                remove(part)
        return whole

    def copy_out_unverified(self, key: ObjectKey, part: str, path: str) -> UnverifiedCopy | None:
        """Copy a large cached object to the new file `part`, deferring its verification. `path` is the object's path.

        Returns None, leaving no file, if the object is missing or must be verified at once. Raises `OSError` if `part`
        cannot be written.
        """
        found = self._known_crc(key)
        return copy_unverified(path, found, part) if found else None

    def put_in_unverified(self, key: ObjectKey, file: str) -> int | None:
        """Add a file whose bytes are not verified yet. The caller must have reserved space for it.

        Returns the mtime to pass to `mark_verified`, or None if the object already exists or cannot be added.
        """
        path = self._object_path(key.name)
        try:
            return os.stat(path).st_mtime_ns if add_file(file, path, key.size) else None
        except OSError as error:
            _log.warning("cannot cache %s: %s", path, error.strerror)
            return None

    def mark_verified(self, name: str, crc: int, mtime: int) -> None:
        """Record the CRC of a verified object. The CRC is valid as long as the file's mtime is unchanged."""
        note = "INSERT OR REPLACE INTO sums SELECT name, ?, ? FROM kept WHERE name = ?"
        self._change(lambda db: db.execute(note, (crc, mtime, name)))

    def rename(self, name: str, now: str) -> None:
        """Rename a cached object to match its real MD5."""
        new = Path(self._path(now))
        try:
            new.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.rename(self._path(name), new)
        except OSError as error:
            _log.warning("cannot cache %s: %s", new, error.strerror)
        book = "UPDATE OR REPLACE kept SET name = ? WHERE name = ?"
        self._change(lambda db: db.execute(book, (now, name)))

    def drop(self, name: str) -> None:
        """Delete an object that failed verification. Its index entry stays until the space is needed."""
        remove(self._path(name))

    def put_in(self, key: ObjectKey, file: str, crc: int | None = None, *, few: bool = False) -> None:
        """Add a verified file. The caller must have reserved space for it. Set `few` if only a few files are added."""
        path = self._object_path(key.name)
        try:
            found = add_file(file, path, key.size, few=few) and os.stat(path)
            if found and (found.st_nlink > 1 or (crc is not None and key.size >= _LARGE)):
                self._new_sums[key.name] = (crc, found.st_mtime_ns)
        except OSError as error:
            _log.warning("cannot cache %s: %s", path, error.strerror)

    def settle(self, names: Sequence[str]) -> None:
        """Finish `put_in`: record CRCs, and delete objects whose index entry is gone.

        Another process may have evicted an entry before its file existed. Without its
        entry, such a file would never be evicted.
        """
        present = self.present(names)
        for name in set(names) - present:
            remove(self._path(name))
        sums = [
            (name, *found) for name in names if (found := self._new_sums.pop(name, None)) and name in present
        ]
        if sums:
            self._change(lambda db: db.executemany("INSERT OR REPLACE INTO sums VALUES (?, ?, ?)", sums))

    def load(self, name: str) -> bytes | None:
        """Return a note's bytes, or None if it is missing or damaged."""
        try:
            digest, _, data = (self._notes / name).read_bytes().partition(b"\n")
        except OSError:
            return None
        if digest != hashlib.sha256(data).hexdigest().encode():
            _log.warning("cached note %s is damaged, dropped it", name)
            remove(self._notes / name)
            return None
        self.touch([name])
        return data

    def lines(self, name: str) -> Iterator[bytes] | None:
        """Return a note's lines, or None if it is missing or damaged.

        The file is read twice, but is never held in memory as a whole.
        """
        try:
            file = open(self._notes / name, "rb")  # noqa: SIM115 - closed when the lines have been read
        except OSError:
            return None
        if not is_whole(file):
            file.close()
            _log.warning("cached note %s is damaged, dropped it", name)
            remove(self._notes / name)
            return None
        self.touch([name])
        return _closing(file)

    def save(self, name: str, *data: bytes) -> None:
        """Save a note, replacing an older one of the same name."""
        total = hashlib.sha256()
        for piece in data:
            total.update(piece)
        text = (total.hexdigest().encode() + b"\n", *data)
        if name not in self.reserve({name: sum(map(len, text))}):
            return
        part = self._notes / f".{uuid.uuid4().hex}"
        try:
            with open(create(str(part)), "wb") as out:
                out.writelines(text)
            part.replace(self._notes / name)
        except OSError as error:
            _log.warning("cannot cache %s: %s", name, error.strerror)
            remove(part)

    def reserve(self, sizes: Mapping[str, int]) -> set[str]:
        """Make room for new objects by evicting others. `sizes` maps names to sizes. Returns the names that fit."""
        fits: dict[str, int] = {}
        room = self._limit
        for name, size in sizes.items():
            if size <= room:
                fits[name] = size
                room -= size
        if not fits:
            return set()
        now = self._clock()

        def book(db: sqlite3.Connection) -> set[str]:
            # Record before writing: a process that dies leaves too much in the index, never too little.
            rows = [(name, size, now) for name, size in fits.items()]
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
            for name in list(self._to_evict(db)):
                db.execute("DELETE FROM kept WHERE name = ?", (name,))
                db.execute("DELETE FROM sums WHERE name = ?", (name,))
                remove(self._path(name))
            return set(fits)

        return self._change(book) or set()

    def present(self, names: Sequence[str]) -> set[str]:
        """Return those of the given names that are in the index."""
        if not names:
            return set()
        wanted = json.dumps(names)
        query = "SELECT name FROM json_each(?) JOIN kept ON kept.name = json_each.value"
        found = self._on_index(lambda index: index.read(lambda db: db.execute(query, (wanted,)).fetchall()))
        return {name for (name,) in found or ()}

    def touch(self, names: Iterable[str]) -> None:
        """Mark these names as used now."""
        now = self._clock()
        rows = [(now, name) for name in names]
        if rows:
            self._change(lambda db: db.executemany("UPDATE kept SET used = ? WHERE name = ?", rows))

    def used_bytes(self) -> int:
        """Return the total size recorded in the index."""
        return self._on_index(lambda index: index.read(_total)) or 0

    def _drop_changed(self, key: ObjectKey, source: int, path: str) -> None:
        """Delete an object whose bytes have changed. Logs a warning about damage, unless its mtime changed too."""
        mtime = self._recorded_mtime(key)
        if mtime is not None and mtime != os.fstat(source).st_mtime_ns:
            _log.debug("cached object %s was changed by a body, dropped it", path)
        else:
            _log.warning("cached object %s is damaged, dropped it", path)
        remove(path)

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """Yield the cached files, for rebuilding the index. Objects without a repository in their name are deleted."""
        for name, size, changed in files_in(self._objects):
            if _OBJECT.fullmatch(name):
                yield name, size, changed
            else:
                remove(self._object_path(name))
        yield from files_in(self._notes)

    def _check_for(self, source: int, key: ObjectKey) -> Check:
        """Return the check for an object: by CRC if it is known and the file is unchanged, else by MD5."""
        found = self._known_crc(key)
        if found and found.mtime == os.fstat(source).st_mtime_ns:
            return ByCrc(found.crc)
        return ByMd5(key.checksum)

    def _known_crc(self, key: ObjectKey) -> KnownCrc | None:
        """Return the CRC recorded when a large object was verified, or None."""
        if key.size < _LARGE:
            return None
        query = "SELECT crc, mtime FROM sums WHERE name = ? AND crc IS NOT NULL"
        name = key.name
        found = self._on_index(lambda index: index.read(lambda db: db.execute(query, (name,)).fetchone()))
        return KnownCrc(self._object_path(name), key.size, *found) if found else None

    def _recorded_mtime(self, key: ObjectKey) -> int | None:
        """Return the mtime recorded when the object was added, or None."""
        query = "SELECT mtime FROM sums WHERE name = ?"
        found = self._on_index(lambda index: index.read(lambda db: db.execute(query, (key.name,)).fetchone()))
        return int(found[0]) if found else None

    def _to_evict(self, db: sqlite3.Connection) -> Iterator[str]:
        """Yield the names to evict, least recently used first, until the remaining ones are within the limit."""
        over = _total(db) - self._limit
        for name, size in db.execute("SELECT name, size FROM kept ORDER BY used") if over > 0 else ():
            if over <= 0:
                return
            yield name
            over -= size

    def _change(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `work` in one transaction on the index."""
        return self._on_index(lambda index: index.change(work))

    def _on_index(self, work: Callable[[Index], T]) -> T | None:
        """Run `work` on the index. Errors are logged, and None is returned."""
        if not self.enabled:
            return None
        try:
            self._make_folder()
            return work(self._index)
        except sqlite3.OperationalError as error:
            _log.warning("cannot use the cache index %s now: %s", self._index.path, error)
        except sqlite3.DatabaseError as error:
            _log.warning("the cache index %s is damaged, emptying the cache: %s", self._index.path, error)
            self._clear()
        except OSError as error:
            _log.warning("cannot use the cache below %s now: %s", self._index.path.parent, error.strerror)
        return None

    def _clear(self) -> None:
        """Empty the cache, because without an index its files would be neither counted nor evicted."""
        self._ready = False
        shutil.rmtree(self._objects, ignore_errors=True)
        shutil.rmtree(self._notes, ignore_errors=True)
        self._index.remove()

    def _make_folder(self) -> None:
        if self._ready:
            return
        make_private(self._folder, (self._objects.name, self._notes.name, *self._index.names))
        for folder in (self._objects, self._notes):
            folder.mkdir(exist_ok=True, mode=0o700)
            restrict_to_owner(folder)
        self._ready = True

    def _path(self, name: str) -> str | Path:
        return self._object_path(name) if _OBJECT.fullmatch(name) else self._notes / name

    def _object_path(self, name: str) -> str:
        return f"{self._objects}/{name[:2]}/{name}"


def _closing(file: BinaryIO) -> Iterator[bytes]:
    with file:
        yield from file


def _total(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(sum(size), 0) FROM kept").fetchone()[0])
