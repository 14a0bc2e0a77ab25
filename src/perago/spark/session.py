"""The Spark session of a process, created for its first Spark task, and a separate session for each attempt.

- All attempts in a process share one JVM and one Spark context.  An attempt's session starts from the configuration,
  and any shared state that it changed is restored when it ends (`shared_state`), so a retry computes the same result as
  the first attempt.
- While an attempt runs, its session is PySpark's default: `SparkSession.builder.getOrCreate()` returns it.
- The scratch folder is below the root and records which process owns it.  A new session removes the folders of dead
  processes, because a killed JVM leaves its shuffle files behind.
- Spark's own signal handling is undone, because the supervisor decides when an attempt ends.
- An attempt ends if its body stops Spark, or if its JVM dies.  The next attempt gets a new Spark context.
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

from perago.errors import RuntimeConfigError, TaskFailed
from perago.runtime.root.state_dir import own_folder
from perago.runtime.root.workdirs import remove_tree
from perago.settings import Settings
from perago.spark.appcds import archive_breaks_jvm, archive_file, quick_options, use_options
from perago.spark.config import (
    Packages,
    is_local,
    is_quick,
    log_options,
    runs_here,
    session_conf,
    with_jvm_options,
)
from perago.spark.failures import JVM_IS_GONE
from perago.spark.python_workers import share_modules
from perago.spark.shared_state import LOG_LEVEL, SharedState, write_no_checksum_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perago.spark")


class Sessions:
    """Provides the process's session and the sessions of its attempts. Thread-safe."""

    def __init__(self, settings: Settings, packages: Packages | None = None) -> None:
        self._settings = settings
        self._packages = packages or Packages()
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._for_checks: SparkSession | None = None
        self._scratch: Path | None = None
        self._shared: SharedState | None = None
        self._users = 0

    def get(self) -> SparkSession:
        """Return the process's session, creating it if there is no usable one."""
        with self._lock:
            if self._session is None or not _is_usable(self._session):
                self._for_checks = None
                self._session = self._make()
            return self._session

    def warm_up(self) -> None:
        """Start creating the session on another thread, while the attempt that needs it downloads its input."""
        # Set the environment here, not on that thread: after a body, it is restored to its state before the body.
        self._choose_python()
        if self._session is None:
            threading.Thread(target=self._get_or_log, name="perago-spark-start", daemon=True).start()

    def for_checks(self) -> SparkSession:
        """Return a session for table checks, in which each query is one Spark job.

        Adaptive execution is off, because it would start a job per shuffle.
        """
        session = self.get()
        with self._lock:
            if self._for_checks is None:
                self._for_checks = session.newSession()
                self._for_checks.conf.set("spark.sql.adaptive.enabled", "false")
            return self._for_checks

    @contextlib.contextmanager
    def in_use(self) -> Iterator[SparkSession]:
        """Yield a new session for one attempt. Shared state is restored when the last running attempt ends."""
        process_session = self.get()
        with self._lock:
            if self._scratch is not None and runs_here(self._settings.spark_master):
                share_modules(process_session.sparkContext, self._scratch)
            if self._users == 0:
                self._shared = SharedState(process_session)
            session = process_session.newSession()
            _make_default(session)
            self._users += 1
        try:
            yield session
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._restore(process_session)

    def check_final_state(self, session: SparkSession, *, publishes: bool) -> None:
        """Raise `TaskFailed` if an attempt stopped Spark, left a query running, or created tables that will be lost."""
        if reason := why_unusable(session):
            raise TaskFailed(reason)
        if self._shared is None or self._users > 1:
            return  # concurrent attempts in one process: the owner is unknown
        if queries := self._shared.running_queries():
            raise TaskFailed(
                f"the task left a streaming query running: {', '.join(queries)}; "
                "wait for it in the body (awaitTermination()), or stop it there"
            )
        if publishes and (tables := self._shared.new_managed_tables()):
            raise TaskFailed(
                f"the task created {', '.join(tables)} in Spark's own catalog (saveAsTable, CREATE TABLE), "
                "which is not published; write it with workspace.write(df, path), or drop it before the task returns"
            )

    @property
    def users(self) -> int:
        """The number of attempts that are using the session."""
        return self._users

    def _restore(self, process_session: SparkSession) -> None:
        shared, self._shared = self._shared, None
        try:
            if _is_usable(process_session) and shared is not None:
                shared.restore()
                _make_default(process_session)
                return
        except Exception as error:
            log.warning("could not restore Spark's state, the next attempt gets a new Spark", exc_info=error)
        # This also stops a context that the body created after stopping ours, because it lacks our configuration.
        _stop_spark()

    def _get_or_log(self) -> None:
        try:
            self.get()
        except Exception as error:
            log.warning("Spark did not start, the next attempt retries", exc_info=error)

    def _choose_python(self) -> None:
        """Make Spark use this process's Python and packages, not the Python on PATH, if the master is local."""
        if is_local(self._settings.spark_master):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    def _make(self) -> SparkSession:
        _forget_dead_jvm()
        scratch = self._scratch = own_folder(self._settings.root / "spark", "session")
        conf = session_conf(self._settings, scratch, os.environ)
        found_before = self._packages.with_cached_jars(conf, os.environ)
        complete = found_before or self._packages.with_packages(conf, os.environ)
        self._choose_python()
        with _keep_sigint_handler():
            session = self._start(complete, log_options(scratch, os.environ))
        if found_before is None and self._packages.names:
            self._packages.remember_files(conf, os.environ, dict(session.sparkContext.getConf().getAll()))
        session.sparkContext.setLogLevel(LOG_LEVEL)
        write_no_checksum_files(session)
        if runs_here(self._settings.spark_master):
            share_modules(session.sparkContext, scratch)
        atexit.register(_end, session, scratch)
        return session

    def _start(self, conf: dict[str, str], log_conf: tuple[str, ...]) -> SparkSession:
        if not is_quick(self._settings):
            log.info("starting a full Spark session")
            return _start(with_jvm_options(conf, log_conf, os.environ))
        archive = archive_file(os.environ)
        options = use_options(archive) if archive is not None else ()
        log.info(
            "starting a quick Spark session, %s an archive of Spark's classes",
            "with" if options else "without",
        )
        try:
            return _start(with_jvm_options(conf, [*log_conf, *quick_options(), *options], os.environ))
        except RuntimeConfigError:
            if archive is None or not options:
                raise
        # If a JVM exits without a message, its archive may be damaged, or it may have been killed.
        if archive_breaks_jvm(archive, os.environ):
            log.warning("Spark did not start with the archive %s, removing it and starting without", archive)
            with contextlib.suppress(OSError):  # we may not be allowed to remove it
                archive.unlink(missing_ok=True)
        else:
            log.warning("Spark did not start, retrying without the archive of its classes")
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


class AttemptSession:
    """The Spark session of one attempt, used by its workspace and its checks."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """Return the attempt's session, or the process's session if `in_use` has not been entered yet."""
        return self._session or self._sessions.get()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[SparkSession]:
        """Create the attempt's session at the start of the `with` block, and release it at the end."""
        with self._sessions.in_use() as session:
            self._session = session
            yield session

    def for_checks(self) -> SparkSession:
        """Return the session for table checks. Raises `TaskFailed` if the body has stopped Spark."""
        if self._session is not None and (reason := why_unusable(self._session)):
            raise TaskFailed(reason)
        return self._sessions.for_checks()

    def check_final_state(self, *, publishes: bool) -> None:
        """Raise `TaskFailed` if the body stopped Spark, left a query running, or created tables that will be lost."""
        if self._session is not None:
            self._sessions.check_final_state(self._session, publishes=publishes)

    @property
    def is_only_attempt(self) -> bool:
        """True if no other attempt in this process is using Spark."""
        return self._sessions.users == 1


def why_unusable(session: SparkSession) -> str | None:
    """Return why a session is no longer usable, or None if it is usable."""
    if _is_usable(session):
        return None
    context: Any = session.sparkContext
    process = getattr(context._gateway, "proc", None)
    if context._jsc is None and (process is None or process.poll() is None):
        return "the task stopped Spark (spark.stop()), which its checks still need; leave that out, Perago ends the session"
    return JVM_IS_GONE


def _make_default(session: SparkSession) -> None:
    """Make this session the default in PySpark and in the JVM, as `SparkSession.builder.getOrCreate()` does."""
    from pyspark.sql import SparkSession, SQLContext

    SparkSession._instantiatedSession = session
    SparkSession._activeSession = session
    SQLContext._instantiatedContext = None
    jvm_class: Any = SparkSession._get_j_spark_session_class(session._jvm)
    jvm_class.setDefaultSession(session._jsparkSession)
    jvm_class.setActiveSession(session._jsparkSession)


def _stop_spark() -> None:
    """Stop any Spark context in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _forget_dead_jvm()
    for running in (SparkSession._instantiatedSession, SparkContext._active_spark_context):
        if running is not None:
            with contextlib.suppress(Exception):
                running.stop()


def _is_usable(session: SparkSession) -> bool:
    from py4j.protocol import Py4JError

    context: Any = session.sparkContext
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _forget_dead_jvm() -> None:
    """Make PySpark forget a dead JVM, so that it starts a new one instead of calling the old one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(OSError, AttributeError):
        process.stdin.close()
    for owner, names in (
        (SparkContext, ("_gateway", "_jvm", "_active_spark_context")),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
    ):
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, None)


def _end(session: SparkSession, scratch: Path) -> None:
    # On a regular exit, the JVM removes its own files, and we remove the rest of the folder.
    with contextlib.suppress(Exception):
        session.stop()
    with contextlib.suppress(OSError):
        remove_tree(scratch)


@contextlib.contextmanager
def _keep_sigint_handler() -> Iterator[None]:
    """Preserve the process's SIGINT handler, which Spark would replace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
