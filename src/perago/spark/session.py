"""The Spark session of a process, made when the first Spark task begins, and a session of its own for each attempt.

- All attempts of a process share one JVM and one Spark context.  An attempt's session starts from the configuration, and
  what it changed beyond that session is put back when it ends (`shared_state`): a retry computes what the first try would.
- While an attempt runs, its session is PySpark's default: `SparkSession.builder.getOrCreate()` returns it.
- The scratch folder is below the root and carries the mark of its process; a new session removes those of the dead,
  because a JVM that was killed leaves its shuffle files behind.
- Spark's own signal handling is undone: whether an attempt ends is the supervisor's decision.
- A body that stops Spark, or whose JVM dies, ends its attempt; the next attempt gets a new JVM.
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
from perago.spark.appcds import archive_file, ends_the_jvm, quick_options, use_options
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
    """Gives out the session of this process, and those of its attempts; safe for threads."""

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
        """A new session for one attempt; what attempts share is put back when the last one leaves."""
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

    def check_left(self, session: SparkSession, *, publishes: bool) -> None:
        """Raise `TaskFailed` if an attempt stopped Spark, left a query running, or has tables that would be lost."""
        if reason := why_gone(session):
            raise TaskFailed(reason)
        if self._shared is None or self._users > 1:
            return  # attempts at once in one process: nothing tells whose it is
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
        """How many attempts have the session now."""
        return self._users

    def _restore(self, process_session: SparkSession) -> None:
        shared, self._shared = self._shared, None
        try:
            if _is_usable(process_session) and shared is not None:
                shared.restore()
                _make_default(process_session)
                return
        except Exception as error:
            log.warning(
                "Spark cannot be put back to what it was: the next attempt gets a new one", exc_info=error
            )
        # Also a context that the body made after it had stopped ours: it has not our configuration.
        _stop_spark()

    def _try_to_get(self) -> None:
        try:
            self.get()
        except Exception as error:
            log.warning("Spark did not start: the next attempt tries again", exc_info=error)

    def _choose_python(self) -> None:
        """Python functions run in the Python of this process, with its packages, not in whatever is on PATH."""
        if is_local(self._settings.spark_master):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    def _make(self) -> SparkSession:
        _forget_dead_jvm()
        scratch = self._scratch = own_folder(self._settings.root / "spark", "session")
        conf = session_conf(self._settings, scratch, os.environ)
        found_before = self._packages.by_their_files(conf, os.environ)
        complete = found_before or self._packages.resolved_by_ivy(conf, os.environ)
        self._choose_python()
        with _own_signals():
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


class AttemptSession:
    """The session of one attempt, for its workspace and its checks."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """The session; that of the process before the attempt is at work."""
        return self._session or self._sessions.get()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[SparkSession]:
        """Have the session made, and taken away at the end."""
        with self._sessions.in_use() as session:
            self._session = session
            yield session

    def for_checks(self) -> SparkSession:
        """The session for table checks; raises `TaskFailed` if the body has stopped Spark."""
        if self._session is not None and (reason := why_gone(self._session)):
            raise TaskFailed(reason)
        return self._sessions.for_checks()

    def check_left(self, *, publishes: bool) -> None:
        """Raise `TaskFailed` if the attempt may not end as it left Spark."""
        if self._session is not None:
            self._sessions.check_left(self._session, publishes=publishes)

    @property
    def alone(self) -> bool:
        """Whether no other attempt of this process is at work."""
        return self._sessions.users == 1


def why_gone(session: SparkSession) -> str | None:
    """Why a session cannot be used any more, or None if it can."""
    if _is_usable(session):
        return None
    context: Any = session.sparkContext
    process = getattr(context._gateway, "proc", None)
    if context._jsc is None and (process is None or process.poll() is None):
        return "the task stopped Spark (spark.stop()), which its checks still need; leave that out, Perago ends the session"
    return JVM_IS_GONE


def _make_default(session: SparkSession) -> None:
    """Let PySpark and the JVM take this session for the current one, as `SparkSession.builder.getOrCreate()` does."""
    from pyspark.sql import SparkSession, SQLContext

    SparkSession._instantiatedSession = session
    SparkSession._activeSession = session
    SQLContext._instantiatedContext = None
    jvm_class: Any = SparkSession._get_j_spark_session_class(session._jvm)
    jvm_class.setDefaultSession(session._jsparkSession)
    jvm_class.setActiveSession(session._jsparkSession)


def _stop_spark() -> None:
    """Stop whatever Spark context this process has."""
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
    """Have PySpark start a new JVM where its own has died: it would go on asking the old one."""
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
