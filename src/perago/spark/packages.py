"""The packages that a session needs for Perago itself, and their files once they have been found.

Spark has Ivy resolve packages anew at every start, which takes as long as all the rest of it.  So a session that asked for
nothing but these leaves a list of their files in the user's cache folder, and the next one is given the files.

The rule: a list counts only while every file on it is as long as it was.  Else Ivy resolves, and so it does where the
operator names packages or jars too: one set must come of all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perago.spark.conf import is_local
from perago.spark.user_cache import cache_folder
from perago.spark_defaults import spark_defaults

_PACKAGES, _EXCLUDES, _JARS = "spark.jars.packages", "spark.jars.excludes", "spark.jars"
_WHERE = ("spark.jars.ivy", "spark.jars.ivySettings", "spark.jars.repositories")
"""What else decides which files Ivy finds."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages by their Maven coordinates, without some of what they would bring along."""

    names: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def resolved_by_ivy(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """The configuration with these packages after those that are set."""
        known, complete = {**spark_defaults(environ), **conf}, {**conf}
        for key, items in ((_PACKAGES, self.names), (_EXCLUDES, self.excludes)):
            if items:
                complete[key] = ",".join([*filter(None, [known.get(key)]), *items])
        return complete

    def by_their_files(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str] | None:
        """The configuration with the files that were found before; None where they are not known, or not all there."""
        kept = self._list_of_files(conf, environ)
        if kept is None:
            return None
        try:
            sizes = json.loads(kept.read_text(encoding="utf-8"))
            if not sizes or any(_file(uri).stat().st_size != size for uri, size in sizes.items()):
                return None
        except (OSError, ValueError, AttributeError):
            return None
        # With a local master every task sees the driver's files: no need to serve copies of them.
        scheme = "local:" if is_local(conf.get("spark.master", "")) else "file:"
        return {**conf, _JARS: ",".join(scheme + uri.removeprefix("file:") for uri in sizes)}

    def remember_files(
        self, conf: Mapping[str, str], environ: Mapping[str, str], started: Mapping[str, str]
    ) -> None:
        """Keep the list of files that Ivy found.

        `conf` is what `by_their_files` was asked with, `started` what the session that came of it says of itself.
        """
        kept = self._list_of_files(conf, environ)
        found = started.get(_JARS, "").split(",")
        # A session that was there before us may have asked for something else.
        if kept is None or started.get(_PACKAGES) != ",".join(self.names) or not self._are_all_in(found):
            return
        with contextlib.suppress(OSError, ValueError):
            sizes = {uri: _file(uri).stat().st_size for uri in found}
            kept.parent.mkdir(parents=True, exist_ok=True)
            # Whoever reads it finds a whole one, and a full disk leaves no part of one behind.
            with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
                made = Path(folder) / kept.name
                made.write_text(json.dumps(sizes), encoding="utf-8")
                made.rename(kept)

    def _are_all_in(self, uris: Sequence[str]) -> bool:
        wanted = ["-".join(name.split(":")[1:]) + ".jar" for name in self.names]
        return all(any(uri.endswith(name) for uri in uris) for name in wanted)

    def _list_of_files(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
        """Where the list is kept, or would be; None where Ivy has to do it."""
        known = {**spark_defaults(environ), **conf}
        folder = cache_folder(environ)
        if folder is None or not self.names or any(known.get(key) for key in (_PACKAGES, _EXCLUDES, _JARS)):
            return None
        asked = [self.names, self.excludes, [known.get(key) for key in _WHERE], version("pyspark")]
        return folder / f"{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]}.jars.json"


def _file(uri: str) -> Path:
    where = urlsplit(uri)
    if where.scheme != "file":
        raise ValueError(f"{uri} is not a file of this machine")
    return Path(unquote(where.path))
