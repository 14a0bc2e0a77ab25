"""The code and the environment of an attempt, as its commits record them, and the list of installed packages.

    perago.code        the Git commit of the task's project, with `+dirty` if a file of it differs; or the distribution that
                       the task's module belongs to, as `name==version`; or `sha256:` and the beginning of a digest of
                       the task's own sources
    perago.packages    a digest of the installed distributions
    perago.runtime     the versions of Perago, Python and, for Spark tasks, PySpark
    perago.image       the value of PERAGO_IMAGE, if it is set

The list of distributions would be too long for every commit.  It is in the task log, as lines of at most 4 KB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from perago.protocol.metadata import CODE, IMAGE, PACKAGES, RUNTIME

PACKAGES_MARK = "perago.packages "
DIRTY = "+dirty"
SHORT_DIGEST = 12
_KEYS = {"code": CODE, "packages": PACKAGES, "runtime": RUNTIME, "image": IMAGE}
_MOST_CHARS = 3900
_GIT_COMMIT = re.compile(r"([0-9a-f]{12})[0-9a-f]{28,52}(\+dirty)?")


@dataclass(frozen=True, slots=True)
class Provenance:
    """The code and the environment of an attempt.  What is unknown is empty."""

    code: str = ""
    packages: str = ""
    runtime: str = ""
    image: str = ""

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Provenance:
        """Return what a commit's metadata says."""
        return cls(**{name: metadata.get(key, "") for name, key in _KEYS.items()})

    def metadata(self) -> dict[str, str]:
        """Return what is known, as metadata of a commit."""
        return {_KEYS[name]: value for name, value in asdict(self).items() if value}

    @property
    def short(self) -> str:
        """Code and versions in a few words, or "" if neither is known."""
        return ", ".join(part for part in (short_code(self.code), self.runtime) if part)


UNKNOWN = Provenance()


def in_common(all_of: Iterable[Provenance]) -> Provenance:
    """Return the values that are the same in all of them."""
    found = list(map(asdict, all_of))
    same = {name: {one[name] for one in found} for name in _KEYS}
    return Provenance(**{name: values.pop() for name, values in same.items() if len(values) == 1})


def short_code(code: str) -> str:
    """Return the code with the Git commit shortened."""
    match = _GIT_COMMIT.fullmatch(code)
    return f"{match[1]}{match[2] or ''}" if match else code


def packages_digest(packages: Sequence[str]) -> str:
    """Return the digest of distributions, each as `name==version`, sorted."""
    return sha256("\n".join(packages).encode("utf-8", "surrogatepass")).hexdigest()[:SHORT_DIGEST]


def packages_lines(packages: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the task log that contain the list of distributions."""
    digest, line = packages_digest(packages), ""
    for package in packages:
        if line and len(line) + len(package) + 1 > _MOST_CHARS:
            yield f"{PACKAGES_MARK}{digest} {line}"
            line = ""
        line = f"{line} {package}".lstrip()
    if line:
        yield f"{PACKAGES_MARK}{digest} {line}"


def read_packages(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the lists of distributions in a task log, by digest.  A list that does not fit its digest is left out."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if is_packages_line(line):
            digest, *packages = line.removeprefix(PACKAGES_MARK).split()
            found.setdefault(digest, []).extend(packages)
    # An attempt that was delivered twice has its list twice.
    lists = {digest: tuple(sorted(set(packages))) for digest, packages in found.items()}
    return {digest: packages for digest, packages in lists.items() if packages_digest(packages) == digest}


def is_packages_line(line: str) -> bool:
    """Return whether a line of the task log belongs to the list of distributions."""
    return re.match(rf"{re.escape(PACKAGES_MARK)}[0-9a-f]{{{SHORT_DIGEST}}} \S+==", line) is not None
