"""The Spark session of a process: made when the first Spark task begins, reused by all that follow.

- Its scratch folder is below the root and carries the mark of its process; a new session removes those of the dead,
  because a JVM that was killed leaves its shuffle files behind.
- Spark's own signal handling is undone: whether an attempt ends is the supervisor's decision.
- A session whose JVM has died, or that a body has stopped, is made anew for the next attempt.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.errors import RuntimeConfigError
from perago.runtime.root.own_folder import own_folder
from perago.runtime.root.removal import remove_tree
from perago.settings import Settings
from perago.spark.class_archive import archive_file, ends_the_jvm, quick_options, use_options
from perago.spark.conf import is_local, is_quick, parse_conf, session_conf, with_jvm_options
from perago.spark.packages import Packages
from perago.spark.spark_log import log_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perago.spark")


class Sessions:
    """Gives out the session of this process; safe for threads."""

    def __init__(self, settings: Settings, packages: Packages | None = None) -> None:
        self._settings = settings
        self._packages = packages or Packages()
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._for_checks: SparkSession | None = None
        self._users = 0

    def get(self) -> SparkSession:
        """The session, made on first use."""
        with self._lock:
            if self._session is None or not _is_usable(self._session):
                self._for_checks = None
                self._session = self._make()
            return self._session

    def warm_up(self) -> None:
        """Begin to make the session on a thread of its own, alongside the download of the attempt that needs it."""
        # Here, not on the thread: what is in the environment when a body begins is put back when it ends.
        self._choose_python()
        if self._session is None:
            threading.Thread(target=self._try_to_get, name="perago-spark-start", daemon=True).start()

    def for_checks(self) -> SparkSession:
        """A session beside it in which one query is one Spark job: adaptive execution would make a job per shuffle."""
        session = self.get()
        with self._lock:
            if self._for_checks is None:
                self._for_checks = session.newSession()
                self._for_checks.conf.set("spark.sql.adaptive.enabled", "false")
            return self._for_checks

    @contextlib.contextmanager
    def in_use(self) -> Iterator[SparkSession]:
        """The session for one attempt; what attempts have cached and named is dropped when the last one leaves."""
        session = self.get()
        with self._lock:
            self._users += 1
        try:
            yield session
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    _forget(session)

    @property
    def users(self) -> int:
        """How many attempts have the session now."""
        return self._users

    def _try_to_get(self) -> None:
        try:
            self.get()
        except Exception as error:
            log.warning("Spark did not start: the next attempt tries again", exc_info=error)

    def _choose_python(self) -> None:
        """Python functions run in the Python of this process, with its packages, not in whatever is on PATH."""
        if is_local(parse_conf(self._settings.spark_conf).get("spark.master", self._settings.spark_master)):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    def _make(self) -> SparkSession:
        _forget_dead_jvm()
        scratch = own_folder(self._settings.root / "spark", "session")
        conf = session_conf(self._settings, scratch, os.environ)
        found_before = self._packages.by_their_files(conf, os.environ)
        complete = found_before or self._packages.resolved_by_ivy(conf, os.environ)
        self._choose_python()
        with _own_signals():
            session = self._start(complete, log_options(scratch, os.environ))
        if found_before is None and self._packages.names:
            self._packages.remember_files(conf, os.environ, dict(session.sparkContext.getConf().getAll()))
        session.sparkContext.setLogLevel("WARN")
        _write_no_checksum_files(session)
        atexit.register(_end, session, scratch)
        return session

    def _start(self, conf: dict[str, str], log_conf: tuple[str, ...]) -> SparkSession:
        if not is_quick(self._settings):
            log.info("a full Spark session starts")
            return _start(with_jvm_options(conf, log_conf, os.environ))
        archive = archive_file(os.environ)
        options = use_options(archive) if archive is not None else ()
        log.info(
            "a quick Spark session starts, %s an archive of Spark's classes", "with" if options else "without"
        )
        try:
            return _start(with_jvm_options(conf, [*log_conf, *quick_options(), *options], os.environ))
        except RuntimeConfigError:
            if archive is None or not options:
                raise
        # A damaged archive can end the JVM before it says a word, and so can whoever kills it.
        if ends_the_jvm(archive, os.environ):
            log.warning(
                "Spark did not start with the archive %s: it is removed, and Spark starts without", archive
            )
            with contextlib.suppress(OSError):  # somebody else's cache may stay
                archive.unlink(missing_ok=True)
        else:
            log.warning("Spark did not start, and is started again, without the archive of its classes")
        return _start(with_jvm_options(conf, [*log_conf, *quick_options()], os.environ))


def _start(conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            packages = conf.get("spark.jars.packages")
            fetched = f"Can spark.jars.packages be fetched ({packages})? " if packages else ""
            raise RuntimeConfigError(
                "Spark did not start: is a Java 17 or later on PATH or in JAVA_HOME? "
                f"{fetched}The log has Spark's own words"
            ) from error
        raise


def _write_no_checksum_files(session: SparkSession) -> None:
    """Without the checksum file that Hadoop puts next to each file of a local folder: lakes have their own."""
    jvm: Any = session._jvm
    context: Any = session.sparkContext
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)


def _is_usable(session: SparkSession) -> bool:
    from py4j.protocol import Py4JError

    context: Any = session.sparkContext
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _forget_dead_jvm() -> None:
    """Have PySpark start a new JVM where its own has died: it would go on asking the old one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    for owner, names in (
        (SparkContext, ("_gateway", "_jvm", "_active_spark_context")),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
    ):
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, None)


def _forget(session: SparkSession) -> None:
    """Drop cached tables and temporary views, so that one attempt's do not become another's."""
    if _is_usable(session):
        session.catalog.clearCache()
        # The catalog's own listing takes a second; this is what it would call for each.
        jvm_session: Any = session._jsparkSession
        jvm_session.sessionState().catalog().clearTempTables()


def _end(session: SparkSession, scratch: Path) -> None:
    # An exit in good order: the JVM removes what it has, and we remove the rest.
    with contextlib.suppress(Exception):
        session.stop()
    with contextlib.suppress(OSError):
        remove_tree(scratch)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the process's own handler of SIGINT, which Spark replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
