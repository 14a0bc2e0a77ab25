"""Spark's classes, archived for the JVM, so that a session starts in half the time.

A JVM spends most of a short session on reading and checking Spark's classes.  An archive of them (AppCDS) keeps that work.
It lies in the user's cache folder, one for each Java and Spark, and is made by a Spark session that does nothing else:

    python -m perago.spark.appcds

The rule: an archive that is missing, of another Java, or damaged costs nothing but time.  The JVM checks it and goes on
without; where even that fails, the session is started again without it (`session.py`).  It is removed only where it was the
one to blame (`ends_the_jvm`): a JVM that something else has killed says as little.
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
"""The first compiler alone: the code of a short session is gone before the second one's work pays."""

_SERIAL = "-XX:+UseSerialGC"
_FEW_CORES = 2

_AGAIN_AFTER = 24 * 3600.0
"""Seconds until an archive that could not be made is tried again."""

_LONGEST_START = 60.0
"""Seconds after which a JVM that says nothing counts as one that does not start."""


def quick_options(cores: int | None = None) -> tuple[str, ...]:
    """JVM options of a session that starts quickly.

    With so few cores a collector that works beside the program only takes them from it: 13 % of a start's CPU, on two.
    """
    few = (cores or os.cpu_count() or 1) <= _FEW_CORES
    return (QUICK_COMPILER, _SERIAL) if few else (QUICK_COMPILER,)


def archive_file(environ: Mapping[str, str]) -> Path | None:
    """Where the archive for this Java and this Spark is, or would be; None where they cannot be told."""
    java, spark, folder = _java_home(environ), _spark_home(environ), cache_folder(environ)
    if java is None or spark is None or folder is None:
        return None
    try:
        made_for = f"{java} {(java / 'release').read_text(encoding='utf-8')} {spark} {version('pyspark')}"
    except (OSError, ValueError, ImportError):
        return None
    return folder / f"{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"


def use_options(archive: Path) -> tuple[str, ...]:
    """JVM options that use an archive; the JVM compares its checksums and says nothing if it cannot use it."""
    # Options are cut at spaces on their way: such a folder goes without.
    if " " in str(archive) or not _is_whole(archive):
        return ()
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off")


def ends_the_jvm(archive: Path, environ: Mapping[str, str]) -> bool:
    """Whether Spark's JVM cannot start with an archive, and can without: nothing else is wrong with it then."""
    return not _starts(use_options(archive), environ) and _starts((), environ)


def _starts(options: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a JVM with these options comes as far as to say which Spark it runs."""
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
    """Begin to make the archive if it is not there, in a process that outlives this one; tells whether it began."""
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
    """Make the archive here and now; False where another process is at it, or it did not work."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(archive) as mine:
        if not mine:
            return False
        if archive.exists():
            return True
        failed = _failed(archive)
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
    """Run what sessions usually run; the JVM writes the archive of what that needed when it ends."""
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
    _usual_work(session, folder)
    session.stop()
    # The JVM ends when nobody can tell it anything any more.
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _usual_work(session: SparkSession, folder: Path) -> None:
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
def _only_one(archive: Path) -> Iterator[bool]:
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _is_whole(archive: Path) -> bool:
    """Whether it is as long as it was made: the JVM crashes on one that is cut off, before it can compare checksums."""
    try:
        return archive.stat().st_size == int(_size_file(archive).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _size_file(archive: Path) -> Path:
    return archive.with_suffix(".size")


def _failed(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _failed_lately(archive: Path) -> bool:
    try:
        return time.time() - _failed(archive).stat().st_mtime < _AGAIN_AFTER
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
    """Make the archive of this Java and Spark; 0 also where it was there already."""
    archive = archive_file(os.environ)
    if archive is None:
        sys.stderr.write("there is no Java, or no Spark: no archive of Spark's classes was made\n")
        return 1
    os.nice(10)
    return 0 if archive.exists() or make(archive) else 1


if __name__ == "__main__":
    sys.exit(main())
