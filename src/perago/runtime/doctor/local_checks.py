"""Local checks: Python, Java, Spark, disks, and this machine's clock compared with the servers' clocks.

Only Spark tasks need Java and PySpark, so a missing Java is fine if PySpark is not installed.

The disk checks create no folder.  If a folder is missing, they check its nearest existing parent.

lakeFS's gateway rejects a request if the time in its signature is more than 15 minutes off the gateway's clock, so no
data can be transferred if the clocks differ that much.  With a smaller difference, ages (`sweep --older-than`) and
times in logs are wrong.
"""

from __future__ import annotations

import http.client
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from perago.errors import install_extra
from perago.runtime.doctor.finding import Finding, Level
from perago.runtime.doctor.settings_checks import shown_size
from perago.runtime.root.file_times import mapped_writes_show
from perago.settings import Settings

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
_SECONDS = 30.0
_INSTALL_JAVA = (
    "install a Java 17 or later (for example openjdk-17-jre-headless), or set JAVA_HOME to the folder of one"
)
_WITH_SPARK = ("pyspark", "pandas", "pyarrow")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')

LOW_SPACE_BYTES = 1024**3
"""With less free space than this, large workspaces may not fit."""
MIN_SPACE_BYTES = 64 * 1024**2
_PROBE_BYTES = 64 * 1024

NOTICEABLE_SKEW_SECONDS = 5.0
REJECTED_SKEW_SECONDS = 15 * 60.0
_CLOCK_SECONDS = 5.0
_REMEDY = "set this machine's clock, or the server's: have both follow NTP"


def check_python(perago: str) -> Finding:
    """Report the versions of Python and Perago."""
    says = f"{platform.python_version()} at {sys.executable}, with Perago {perago}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("Python", "fail", says, "make an environment with Python 3.11 or later")
    return Finding("Python", "ok", says)


def check_spark() -> Finding:
    """Check that PySpark and the packages it needs are installed, without starting anything."""
    found = {name: _installed(name) for name in _WITH_SPARK}
    if found["pyspark"] is None:
        return Finding(
            "Spark",
            "ok",
            "PySpark is not installed, which only Spark tasks need",
            f"for those run `{install_extra('spark')}`",
        )
    missing = [name for name, installed in found.items() if installed is None]
    if missing:
        says = f"PySpark {found['pyspark']} is there, but {' and '.join(missing)} is missing"
        return Finding("Spark", "fail", says, f"run `{install_extra('spark')}`")
    return Finding("Spark", "ok", ", ".join(f"{name} {installed}" for name, installed in found.items()))


def check_java(environ: Mapping[str, str], *, needed: bool) -> Finding:
    """Check the Java installation that Spark would use: the one in JAVA_HOME, or else the one on PATH."""
    home = environ.get("JAVA_HOME", "").strip()
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH", ""))
    if java is None or not Path(java).is_file():
        where = (
            f"JAVA_HOME={home} has no bin/java" if home else "there is none on PATH, and JAVA_HOME is not set"
        )
        if needed:
            return Finding("Java", "fail", f"{where}: Spark tasks cannot run", _INSTALL_JAVA)
        return Finding("Java", "ok", f"{where}; only Spark tasks need one")
    answer = _java_version(java)
    match = _VERSION.search(answer)
    if match is None:
        return Finding(
            "Java", "fail" if needed else "warn", f"{java} does not run: {answer[:200]}", _INSTALL_JAVA
        )
    says = f"{match[1]}{match[2]} at {java}"
    if int(match[1]) < OLDEST_JAVA:
        return Finding("Java", "fail" if needed else "warn", f"{says} is too old for Spark", _INSTALL_JAVA)
    return Finding("Java", "ok", says)


def has_spark() -> bool:
    """Return whether PySpark is installed, which implies that Spark tasks are meant to run on this machine."""
    return _installed("pyspark") is not None


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java_version(java: str) -> str:
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return f"it gave no answer within {_SECONDS:g} s"
    except OSError as error:
        return str(error.strerror)
    return done.stderr + done.stdout or "it printed nothing"


def check_disks(settings: Settings) -> Iterator[Finding]:
    """Check the workspace root, the cache if there is one, and the folder for temporary files."""
    workspaces = check_folder("disk: workspaces", settings.workspace_root, setting="PERAGO_WORKSPACE_ROOT")
    yield workspaces
    if workspaces.level != "fail":
        yield check_file_times(settings.workspace_root)
    if settings.lakefs is not None and settings.cache_bytes:
        yield check_folder("disk: cache", settings.cache_dir, setting="PERAGO_CACHE_DIR")
    yield check_folder("disk: temporary", Path(tempfile.gettempdir()), setting="TMPDIR")


def check_folder(part: str, folder: Path, *, setting: str) -> Finding:
    """Check that files can be written to a folder, and that enough space is free."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    elsewhere = f"name another folder with {setting}"
    if not there.is_dir():
        return Finding(part, "fail", f"{folder} cannot be made: {there} is a file", elsewhere)
    free = shutil.disk_usage(there).free
    try:
        _write_a_little(there)
    except OSError as error:
        says = f"{folder} cannot be written to: {error.strerror} ({shown_size(free)} free)"
        return Finding(part, "fail", says, f"make room, allow writing there, or {elsewhere}")
    return free_space_finding(part, free, folder, elsewhere)


def check_file_times(folder: Path) -> Finding:
    """Check that the workspaces' file system updates a file's times on every write."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if mapped_writes_show(there):
        return Finding("file times", "ok", f"{folder} shows by times which files were changed")
    return Finding(
        "file times",
        "warn",
        f"{folder} does not show writes through memory maps, as tmpfs does not: all files that a body may change are hashed",
        "name a folder on a disk with PERAGO_WORKSPACE_ROOT if workspaces are large",
    )


def free_space_finding(part: str, free: int, folder: Path, elsewhere: str) -> Finding:
    """Return the finding for this much free space."""
    says = f"{shown_size(free)} free at {folder}"
    if free >= LOW_SPACE_BYTES:
        return Finding(part, "ok", says)
    level: Level = "warn" if free >= MIN_SPACE_BYTES else "fail"
    return Finding(part, level, f"only {says}", f"make room, or {elsewhere}")


def _write_a_little(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(os.urandom(_PROBE_BYTES))
        file.flush()
        # A file system may accept the bytes first and run out of space only later.
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Skew:
    """Lower bound on how many seconds a server's clock is ahead of this machine's; negative if it is behind."""

    seconds: float


def read_skew(url: str, *, clock: Callable[[], float] = time.time) -> Skew | None:
    """Compare this machine's clock with the `Date` header of the response from `url`.

    Returns None if there is no response or it has no date.
    """
    before = clock()
    try:
        request = urllib.request.Request(url, method="GET")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_CLOCK_SECONDS) as answer:
            date = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date")
        error.close()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    after = clock()
    try:
        said = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    # The header has whole seconds, and the response was created at some point between `before` and `after`.
    if said > after:
        return Skew(said - after)
    return Skew(min(0.0, said + 1 - before))


def check_clock(server: str, skew: Skew | None, *, signs: bool) -> Finding:
    """Return the finding for a clock difference.  `signs` is True if request signatures include the time."""
    part = f"clock: {server}"
    if skew is None:
        return Finding(part, "skip", f"{server} sent no time")
    off = abs(skew.seconds)
    if off < NOTICEABLE_SKEW_SECONDS:
        return Finding(part, "ok", f"within {max(1, round(off))} s of this machine's")
    side = "ahead of" if skew.seconds > 0 else "behind"
    says = f"{server}'s clock is {off:.0f} s {side} this machine's"
    if signs and off >= REJECTED_SKEW_SECONDS:
        return Finding(
            part,
            "fail",
            f"{says}: its gateway refuses requests beyond {REJECTED_SKEW_SECONDS:.0f} s",
            _REMEDY,
        )
    return Finding(part, "warn", f"{says}: ages and times in logs are off", _REMEDY)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as the response, because its target may be a server with another clock."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
