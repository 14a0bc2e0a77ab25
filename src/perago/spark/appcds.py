"""Creates and uses an AppCDS archive of Spark's classes, which halves the startup time of a session.

In a short session, the JVM spends most of its time reading and verifying Spark's classes, and the archive saves that
work.  There is one archive for each combination of Java and Spark, in the user's cache folder.  It is created by a
Spark session that does nothing else:

    python -m perago.spark.appcds

An archive that is missing, damaged or made by another Java only costs time: the JVM checks it, and continues without
it.  If even that fails, the session is started again without the archive (`jvm.py`).  The archive is removed only
if it is proven to be the cause (`archive_breaks_jvm`), because a JVM killed by something else looks the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.spark.config import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger("perago.spark")

QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""JVM option that enables only the first JIT compiler: a short session ends before the second one pays off."""

_SERIAL = "-XX:+UseSerialGC"
_FEW_CORES = 2

_RETRY_AFTER = 24 * 3600.0
"""Seconds to wait after a failure to create an archive before trying again."""

_LONGEST_START = 60.0
"""Seconds after which a JVM that has not finished starting is considered failed."""


def quick_options(cores: int | None = None) -> tuple[str, ...]:
    """Return the JVM options for a session that starts quickly.

    With few cores, a concurrent garbage collector only takes CPU time away from the program.  On two cores, it takes
    13 % of a session's startup CPU time.
    """
    few = (cores or os.cpu_count() or 1) <= _FEW_CORES
    return (QUICK_COMPILER, _SERIAL) if few else (QUICK_COMPILER,)


def archive_file(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the archive for this Java and Spark, even if it does not exist.

    Returns None if Java or Spark is not found, or if the user has no cache folder.
    """
    java, spark, folder = _java_home(environ), _spark_home(environ), cache_folder(environ)
    if java is None or spark is None or folder is None:
        return None
    try:
        made_for = f"{java} {(java / 'release').read_text(encoding='utf-8')} {spark} {version('pyspark')}"
    except (OSError, ValueError, ImportError):
        return None
    return folder / f"{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"


def use_options(archive: Path) -> tuple[str, ...]:
    """Return the JVM options for an archive.

    The JVM verifies the archive's checksums, and silently ignores an unusable archive.  Returns no options if the
    archive is truncated, or if Spark would split its path at a space.
    """
    # Spark splits options at spaces, so an archive whose path contains a space cannot be used.
    if " " in str(archive) or not _is_whole(archive):
        return ()
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off")


def archive_breaks_jvm(archive: Path, environ: Mapping[str, str]) -> bool:
    """Return whether the archive keeps Spark's JVM from starting: the JVM starts without it, but not with it."""
    return not _jvm_starts(use_options(archive), environ) and _jvm_starts((), environ)


def _jvm_starts(options: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether a JVM with these options starts and prints Spark's version."""
    spark = _spark_home(environ)
    if spark is None:
        return False
    try:
        done = subprocess.run(
            [str(spark / "bin" / "spark-submit"), "--version"],
            env={**environ, "SPARK_SUBMIT_OPTS": " ".join([*quick_options(), *options])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LONGEST_START,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def make_in_background(environ: Mapping[str, str]) -> bool:
    """Create a missing archive in a process that outlives this one. Returns whether that process was started."""
    archive = archive_file(environ)
    with contextlib.suppress(OSError):
        if archive is None or archive.exists() or _failed_lately(archive):
            return False
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**environ},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return True
    return False


def make(archive: Path) -> bool:
    """Create the archive now. Returns False on failure, or if another process is already creating it."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with _try_lock(archive) as locked:
        if not locked:
            return False
        if archive.exists():
            return True
        failed = _failure_file(archive)
        failed.touch()
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            made = Path(folder) / "classes.jsa"
            _run_a_session(made, Path(folder))
            if not made.is_file():
                return False
            _size_file(archive).write_text(str(made.stat().st_size), encoding="utf-8")
            made.rename(archive)
        failed.unlink(missing_ok=True)
    return True


def _run_a_session(made: Path, folder: Path) -> None:
    """Run a typical session. On exit, its JVM archives the classes that it has loaded."""
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().master("local[2]")
    options = f"{' '.join(quick_options())} -Xlog:disable -XX:ArchiveClassesAtExit={made}"
    for key, value in {
        "spark.driver.extraJavaOptions": options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    gateway: Any = session.sparkContext._gateway
    _run_typical_queries(session, folder)
    session.stop()
    # The JVM exits when its stdin is closed.
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _run_typical_queries(session: SparkSession, folder: Path) -> None:
    rows = session.range(100).selectExpr(
        "id", "id % 7 AS k", "CAST(id AS STRING) AS name", "current_timestamp() AS t"
    )
    rows.createOrReplaceTempView("rows")
    for format in ("parquet", "csv", "json"):
        table = str(folder / format)
        rows.write.mode("overwrite").partitionBy("k").format(format).save(table)
        session.read.format(format).load(table).groupBy("k").count().orderBy("k").collect()
    session.sql("SELECT k, count(DISTINCT name), max(t) FROM rows GROUP BY k").collect()
    window = "OVER (PARTITION BY k ORDER BY id)"
    session.sql(f"SELECT row_number() {window} AS n, lag(t) {window} AS before FROM rows").collect()
    rows.join(rows.groupBy("k").count(), "k").dropDuplicates(["name"]).cache().count()
    session.catalog.clearCache()


@contextlib.contextmanager
def _try_lock(archive: Path) -> Iterator[bool]:
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _is_whole(archive: Path) -> bool:
    """Return whether the archive has its original size.

    A truncated archive crashes the JVM before the checksums are verified.
    """
    try:
        return archive.stat().st_size == int(_size_file(archive).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _size_file(archive: Path) -> Path:
    return archive.with_suffix(".size")


def _failure_file(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _failed_lately(archive: Path) -> bool:
    try:
        return time.time() - _failure_file(archive).stat().st_mtime < _RETRY_AFTER
    except OSError:
        return False


def _java_home(environ: Mapping[str, str]) -> Path | None:
    if environ.get("JAVA_HOME"):
        return Path(environ["JAVA_HOME"]).resolve()
    java = shutil.which("java", path=environ.get("PATH"))
    return Path(java).resolve().parent.parent if java else None


def _spark_home(environ: Mapping[str, str]) -> Path | None:
    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"]).resolve()
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent.resolve() if found is not None and found.origin else None


def main() -> int:
    """Create the archive for this Java and Spark. Returns 0 on success, or if the archive already exists."""
    archive = archive_file(os.environ)
    if archive is None:
        sys.stderr.write("there is no Java, or no Spark: no archive of Spark's classes was made\n")
        return 1
    os.nice(10)
    return 0 if archive.exists() or make(archive) else 1


if __name__ == "__main__":
    sys.exit(main())
