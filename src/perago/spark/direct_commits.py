"""Makes Spark write tables on a staging branch without renaming files (decision 0046).

Object stores have no rename: Spark's own committers write each file under a temporary name, then copy and delete it.
On a staging branch, which is dropped if the attempt fails, that protects nobody.  `DirectCommitProtocol.java` therefore
writes files under their final names.  Spark's own compiler compiles it for the Spark that runs.

What a Spark task wrote after Spark had given it up is a stray.  Strays are deleted before the body's tables are checked
and before the branch is committed, and a commit that contains one is not published.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.protocol.paths import NUL
from perago.spark.failures import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perago.spark")

PROTOCOL = "perago.spark.DirectCommitProtocol"
PROTOCOL_KEY = "spark.sql.sources.commitProtocolClass"

_NOT_INSTALLED: tuple[type[Exception], ...] = (*SPARK_ERRORS, TypeError)
"""What a call of an unknown Java class raises. The log says why it is unknown."""
_SOURCE = Path(__file__).with_name("DirectCommitProtocol.java")
_FILE = re.compile(r"(?:.*/)?part-\d{5,}-(?P<job>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-\d+[-._][^/]*")


def install(session: SparkSession, scratch: Path) -> None:
    """Compile the commit protocol, and make it known to the driver and its executors.

    If that fails, writes work as before, only slower.
    """
    jvm: Any = session._jvm
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_SOURCE.read_text(encoding="utf-8"))
        jar = scratch / "perago-direct-commits.jar"
        with zipfile.ZipFile(jar, "w") as classes:
            for name, code in dict(compiler.getBytecodes()).items():
                classes.writestr(name.replace(".", "/") + ".class", bytes(code))
        # In a session from PySpark, this loader also has the files of spark.jars.
        jvm.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        session.sparkContext._jsc.addJar(str(jar))
    except SPARK_ERRORS as error:
        log.warning("this Spark cannot write tables directly, its own committer is used", exc_info=error)


def commits_directly(session: SparkSession) -> bool:
    """Return whether a session writes tables on its branch directly."""
    return session.conf.get(PROTOCOL_KEY) == PROTOCOL


class DirectCommits:
    """The files that Spark's jobs have committed on one staging branch."""

    def __init__(self, repository: str, branch: str) -> None:
        self._base = f"s3a://{repository}/{branch}"
        self._protocol: Any = None
        self._jobs: dict[str, frozenset[str]] = {}

    @contextlib.contextmanager
    def recording(self, session: SparkSession) -> Iterator[None]:
        """Make the session write tables on the branch directly, and record what its jobs commit."""
        jvm: Any = session._jvm
        try:
            protocol: Any = functools.reduce(getattr, PROTOCOL.split("."), jvm)
            protocol.open(self._base)
        except _NOT_INSTALLED:
            yield
            return
        session.conf.set(PROTOCOL_KEY, PROTOCOL)
        self._protocol = protocol
        try:
            yield
        finally:
            self._protocol = None
            with contextlib.suppress(*SPARK_ERRORS):
                self._jobs = _parse(protocol.committed(self._base))
                protocol.close(self._base)

    def strays(self, paths: Iterable[str]) -> list[str]:
        """Return the paths on the branch that one of the jobs wrote but did not commit."""
        if self._protocol is not None:
            self._jobs = _parse(self._protocol.committed(self._base))
        return [path for path in paths if self.is_stray(path)]

    def is_stray(self, path: str) -> bool:
        """Return whether one of the jobs wrote a path on the branch, but did not commit it."""
        match = _FILE.fullmatch(path)
        if match is None or (committed := self._jobs.get(match["job"])) is None:
            return False
        return f"{self._base}/{path}" not in committed

    def __bool__(self) -> bool:
        return bool(self._jobs)


def _parse(text: str) -> dict[str, frozenset[str]]:
    """Parse jobs with their committed files: NUL ends each of them, and each job."""
    jobs = (job.split(NUL) for job in text.split(NUL + NUL) if job)
    return {job: frozenset(files) for job, *files in jobs}
