"""The content cache: objects of a repository by the MD5 of their bytes, and small notes (listings), below one folder.

    objects/ab/<md5>-<size>-<repository>    an object's bytes; the repository as a hash of its server and name
    notes/<name>                            a checksum of the rest, then the rest
    index.db                                what there is, how large, when it was last used (SQLite)

Nobody but its owner can read any of it.
An MD5 proves that bytes were not damaged, not that they are the right ones: anybody can make two files with one MD5.  So
what came from one repository is never handed out for another.
The rules: what comes out is hashed on its way, so that a flipped byte or a cut file is a miss, never a result; the
whole stays below a bound, least recently used out first; any number of threads and processes share the folder; and
the cache never fails a transfer: what goes wrong in here is a miss.  Only bytes that were read whole and are not those
wanted are damage: a full disk under the file that is written says nothing of the object.

A new object is a clone of the file that was just downloaded where the file system can; of a few files the small ones are
copies; others are hard links, so filling hardly costs anything.  A body that then writes into a linked file in place
changes the cached object, which the next hash notices: it is dropped, and by its time of change it is no damage.  What is
handed out is always a copy, so nothing spreads.

Large objects are checked by a CRC, which takes a fifth of the time of their MD5, as long as their file is untouched by
its time of change; otherwise by the MD5.  One that was not verified yet when it came in has no CRC until `mark_verified`: whoever
takes it out before, or after a process that died, hashes it.
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
    Noted,
    UncheckedCopy,
    Unreadable,
    close_to_others,
    copy_checked,
    copy_unchecked,
    create,
    files_in,
    is_whole,
    make_private,
    remove,
    take_in,
)
from perago.lake.lakefs.cache.index import Index

_LARGE = 4 * 1024 * 1024
"""Below it the look for a CRC costs as much as it saves."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


_OBJECT = re.compile(r"[0-9a-f]{32}-[0-9]+-[0-9a-f]{32}")
"""A name in the cache that is an object's.  Before, it ended after the size."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Which bytes: an object's MD5 and size, and `repository_id` of where it came from."""

    repository: str
    checksum: str
    size: int

    @property
    def name(self) -> str:
        """The name it has in the cache."""
        return f"{self.checksum}-{self.size}-{self.repository}"


def repository_id(endpoint: str, repository: str) -> str:
    """What objects of one repository of one server have in their names."""
    return hashlib.sha256(f"{endpoint}\n{repository}".encode()).hexdigest()[:32]


class Cache:
    """A bounded folder of verified bytes; with a bound of 0 it holds nothing."""

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
        """Give the index back; the next use opens it again."""
        self._index.close()

    @property
    def enabled(self) -> bool:
        """Whether anything can be kept at all."""
        return self._limit > 0

    def copy_out(self, key: ObjectKey, part: str) -> bool:
        """Write a cached object to the new file `part`, if it is here and whole; `part` is not there otherwise.

        An `OSError` is that of `part`.
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

    def copy_out_unchecked(self, key: ObjectKey, part: str, path: str) -> UncheckedCopy | None:
        """Write a large cached object to the new file `part`, to be checked later as the copy of the object `path`.

        None, and no `part`, where it has to be checked at once, or is not here.  An `OSError` is that of `part`.
        """
        found = self._noted(key)
        return copy_unchecked(path, found, part) if found else None

    def put_in_unverified(self, key: ObjectKey, file: str) -> int | None:
        """Keep the bytes of `file` before it is known whether they are right; its room was reserved before.

        Returns what `mark_verified` has to be told; None where there is such an object already, or none can be kept.
        """
        path = self._object_path(key.name)
        try:
            return os.stat(path).st_mtime_ns if take_in(file, path, key.size) else None
        except OSError as error:
            _log.warning("cannot cache %s: %s", path, error.strerror)
            return None

    def mark_verified(self, name: str, crc: int, mtime: int) -> None:
        """Note the CRC of an object that is verified by now; it counts while the object is what was put in."""
        note = "INSERT OR REPLACE INTO sums SELECT name, ?, ? FROM kept WHERE name = ?"
        self._change(lambda db: db.execute(note, (crc, mtime, name)))

    def rename(self, name: str, now: str) -> None:
        """Have an object under the name of its real MD5."""
        new = Path(self._path(now))
        try:
            new.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.rename(self._path(name), new)
        except OSError as error:
            _log.warning("cannot cache %s: %s", new, error.strerror)
        book = "UPDATE OR REPLACE kept SET name = ? WHERE name = ?"
        self._change(lambda db: db.execute(book, (now, name)))

    def drop(self, name: str) -> None:
        """Take an object away whose bytes are wrong; it is on the books until something else needs the room."""
        remove(self._path(name))

    def put_in(self, key: ObjectKey, file: str, crc: int | None = None, *, few: bool = False) -> None:
        """Keep the bytes of `file`, which were just verified and are one of a `few`; its room was reserved before."""
        path = self._object_path(key.name)
        try:
            found = take_in(file, path, key.size, few=few) and os.stat(path)
            if found and (found.st_nlink > 1 or (crc is not None and key.size >= _LARGE)):
                self._new_sums[key.name] = (crc, found.st_mtime_ns)
        except OSError as error:
            _log.warning("cannot cache %s: %s", path, error.strerror)

    def settle(self, names: Sequence[str]) -> None:
        """After `put_in`: drop what others threw off the books before it was here, else it would stay for ever."""
        present = self.present(names)
        for name in set(names) - present:
            remove(self._path(name))
        sums = [
            (name, *found) for name in names if (found := self._new_sums.pop(name, None)) and name in present
        ]
        if sums:
            self._change(lambda db: db.executemany("INSERT OR REPLACE INTO sums VALUES (?, ?, ?)", sums))

    def load(self, name: str) -> bytes | None:
        """A note's bytes, if it is here and whole."""
        try:
            digest, _, data = (self._notes / name).read_bytes().partition(b"\n")
        except OSError:
            return None
        if digest != hashlib.sha256(data).hexdigest().encode():
            _log.warning("cached note %s is damaged and is dropped", name)
            remove(self._notes / name)
            return None
        self.touch([name])
        return data

    def lines(self, name: str) -> Iterator[bytes] | None:
        """A note's lines, if it is here and whole; it is read twice and never held."""
        try:
            file = open(self._notes / name, "rb")  # noqa: SIM115 - closed by whoever takes the lines
        except OSError:
            return None
        if not is_whole(file):
            file.close()
            _log.warning("cached note %s is damaged and is dropped", name)
            remove(self._notes / name)
            return None
        self.touch([name])
        return _closing(file)

    def save(self, name: str, *data: bytes) -> None:
        """Keep a note, in place of an older one of that name."""
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
        """Make room for what is about to come, by name; returns the names that fit."""
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
            # Booked before a byte is written: a process that dies leaves too much on the books, never too little.
            rows = [(name, size, now) for name, size in fits.items()]
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
            for name in list(self._least_used(db)):
                db.execute("DELETE FROM kept WHERE name = ?", (name,))
                db.execute("DELETE FROM sums WHERE name = ?", (name,))
                remove(self._path(name))
            return set(fits)

        return self._change(book) or set()

    def present(self, names: Sequence[str]) -> set[str]:
        """Which of these are on the books."""
        if not names:
            return set()
        wanted = json.dumps(names)
        look = "SELECT name FROM json_each(?) JOIN kept ON kept.name = json_each.value"
        found = self._on_index(lambda index: index.look(lambda db: db.execute(look, (wanted,)).fetchall()))
        return {name for (name,) in found or ()}

    def touch(self, names: Iterable[str]) -> None:
        """Note that these were used now."""
        now = self._clock()
        rows = [(now, name) for name in names]
        if rows:
            self._change(lambda db: db.executemany("UPDATE kept SET used = ? WHERE name = ?", rows))

    def used_bytes(self) -> int:
        """What is on the books."""
        return self._on_index(lambda index: index.look(_total)) or 0

    def _drop_changed(self, key: ObjectKey, source: int, path: str) -> None:
        """Drop an object whose bytes are others now.  Damage is what came about without a write: that is told."""
        mtime = self._noted_mtime(key)
        if mtime is not None and mtime != os.fstat(source).st_mtime_ns:
            _log.debug("cached object %s was written into by a body and is dropped", path)
        else:
            _log.warning("cached object %s is damaged and is dropped", path)
        remove(path)

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """What is on disk, for an index that is made anew; objects under a name without a repository are removed."""
        for name, size, changed in files_in(self._objects):
            if _OBJECT.fullmatch(name):
                yield name, size, changed
            else:
                remove(self._object_path(name))
        yield from files_in(self._notes)

    def _check_for(self, source: int, key: ObjectKey) -> Check:
        """How an object is checked: by its CRC where that is known and the file was not written since."""
        found = self._noted(key)
        if found and found.mtime == os.fstat(source).st_mtime_ns:
            return ByCrc(found.crc)
        return ByMd5(key.checksum)

    def _noted(self, key: ObjectKey) -> Noted | None:
        """What was noted of a large object when it was verified."""
        if key.size < _LARGE:
            return None
        look = "SELECT crc, mtime FROM sums WHERE name = ? AND crc IS NOT NULL"
        name = key.name
        found = self._on_index(lambda index: index.look(lambda db: db.execute(look, (name,)).fetchone()))
        return Noted(self._object_path(name), key.size, *found) if found else None

    def _noted_mtime(self, key: ObjectKey) -> int | None:
        """When an object's file was last changed by Perago itself, if that was noted."""
        look = "SELECT mtime FROM sums WHERE name = ?"
        found = self._on_index(lambda index: index.look(lambda db: db.execute(look, (key.name,)).fetchone()))
        return int(found[0]) if found else None

    def _least_used(self, db: sqlite3.Connection) -> Iterator[str]:
        """Who must go, oldest use first, so that the rest stays below the bound."""
        over = _total(db) - self._limit
        for name, size in db.execute("SELECT name, size FROM kept ORDER BY used") if over > 0 else ():
            if over <= 0:
                return
            yield name
            over -= size

    def _change(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do work in one transaction on the index."""
        return self._on_index(lambda index: index.change(work))

    def _on_index(self, work: Callable[[Index], T]) -> T | None:
        """Do work on the index; trouble is logged, and the answer is then None."""
        if not self.enabled:
            return None
        try:
            self._make_folder()
            return work(self._index)
        except sqlite3.OperationalError as error:
            _log.warning("the cache index %s cannot be used now: %s", self._index.path, error)
        except sqlite3.DatabaseError as error:
            _log.warning("the cache index %s is damaged, the cache starts over: %s", self._index.path, error)
            self._start_over()
        except OSError as error:
            _log.warning("the cache below %s cannot be used now: %s", self._index.path.parent, error.strerror)
        return None

    def _start_over(self) -> None:
        """Drop everything: without an index nothing is ever counted or thrown out."""
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
            close_to_others(folder)
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
