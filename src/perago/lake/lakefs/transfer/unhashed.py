"""An object whose file was handed out before its MD5 was known: the rest is hashed here, and a verdict is found.

The file is read through a descriptor that was opened before the file had its name, so the body may rename or delete it.
It may write into it, too, and then the MD5 is another one.  So is that of bytes that were damaged on their way, of an object
that came in parts of an unusual size, and of one whose checksum is no hash.  A second transfer tells them apart, by its MD5
and by the CRC that the first one's bytes had when they arrived:

    second transfer's MD5    its CRC           what it was
    fits the checksum        as the first's    the body wrote into its file: good
    fits the checksum        another           the first was damaged on its way: `LakeError`
    does not fit             as the first's    no hash of these bytes: good, as two equal transfers are
    does not fit             another           `LakeError`
"""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass

from perago.errors import LakeError
from perago.lake.base import Entry
from perago.lake.lakefs.checksums import fits, fits_whole
from perago.lake.lakefs.transfer.digests import Digested, Left
from perago.lake.lakefs.transfer.get import Getter
from perago.lake.lakefs.transfer.keeping import Kept
from perago.lake.verification import GivenUp, GoOn

_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Unhashed:
    """One such object: its open file, what is known of its bytes, where they came from, and what the cache has of it."""

    entry: Entry
    file: int
    crc: int
    left: Left
    getter: Getter
    kept: Kept | None

    @property
    def path(self) -> str:
        """The object's path."""
        return self.entry.path

    def verify(self, go_on: GoOn) -> str | None:
        """The MD5 of the bytes that came, if that is not the object's checksum; `LakeError` if they are wrong."""
        try:
            md5, vouched_for = self._verdict(go_on)
        except GivenUp:
            # Without a verdict the cached object is one that is hashed when it is taken out.
            raise
        except BaseException:
            if self.kept is not None:
                self.kept.drop()
            raise
        if self.kept is not None:
            self.kept.verified(md5, self.crc, vouched_for=vouched_for)
        return md5 if md5 != self.entry.checksum else None

    def drop(self) -> None:
        """Close the file."""
        os.close(self.file)

    def _verdict(self, go_on: GoOn) -> tuple[str, bool]:
        """The MD5 of the bytes that came, and whether the object's checksum vouches for it."""
        found = self._finish(go_on)
        if fits(found, self.entry, self.file):
            return found, True
        second = self._second(go_on)
        alike = (second.crc, second.size) == (self.crc, self.entry.size)
        fitting = fits_whole(second.md5, self.entry.checksum or "")
        if fitting and not alike:
            raise LakeError(
                f"{self.getter.doing(self.entry)}: its bytes are not those of its checksum {self.entry.checksum}, which a "
                "second transfer gave; it was damaged on its way, try again"
            )
        if not alike:
            raise self.getter.differing(self.entry, found, second.md5)
        if not fitting:
            self.getter.odd(self.entry)
        return second.md5, fitting

    def _finish(self, go_on: GoOn) -> str:
        """The MD5 of what the file holds by now."""
        md5, at = self.left.md5, self.left.at
        while at < self.entry.size:
            piece = os.pread(self.file, min(_CHUNK, self.entry.size - at), at)
            if not piece:
                break
            md5.update(piece)
            at += len(piece)
            go_on()
        return md5.hexdigest()

    def _second(self, go_on: GoOn) -> Digested:
        """What the object's bytes come to, once more from the lake; they are written nowhere."""
        md5, crc, size = hashlib.md5(usedforsecurity=False), 0, 0
        for piece in self.getter.stream(self.entry):
            md5.update(piece)
            crc = zlib.crc32(piece, crc)
            size += len(piece)
            go_on()
        return Digested(md5.hexdigest(), crc, size)
