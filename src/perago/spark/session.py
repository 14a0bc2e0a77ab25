"""The Spark session of a process, created for its first Spark task, and a separate session for each attempt.

- All attempts in a process share one JVM and one Spark context.  An attempt's session starts from the configuration,
  and any shared state that it changed is restored when it ends (`shared_state`), so a retry computes the same result as
  the first attempt.
- While an attempt runs, its session is PySpark's default: `SparkSession.builder.getOrCreate()` returns it.
- The scratch folder is below the root and records which process owns it.  A new session removes the folders of dead
  processes, because a killed JVM leaves its shuffle files behind.
- Spark's own signal handling is undone, because the supervisor decides when an attempt ends.
- An attempt ends if its body stops Spark, or if its JVM dies.  The next attempt gets a new Spark context.
- A task may declare settings that need a JVM of their own (`session_spec`).  The process keeps its JVM for the next
  attempt that wants the same ones, and otherwise replaces it, but never while another attempt uses it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from perago.errors import RuntimeConfigError, TaskFailed
from perago.runtime.root.spark_uis import forget_ui, note_ui
from perago.runtime.root.state_dir import own_folder
from perago.settings import Settings
from perago.spark.config import Packages, log_options, runs_here, session_conf
from perago.spark.direct_commits import PROTOCOL_KEY, install
from perago.spark.failures import JVM_IS_GONE
from perago.spark.idle import IdleTimer, cluster_defaults, must_stop
from perago.spark.jvm import (
    end,
    forget_dead_jvm,
    is_usable,
    packages_lock,
    start_session,
    stop_jvm,
    stop_spark,
)
from perago.spark.master import check_reachable
from perago.spark.python_workers import python_files, share_modules, ship_modules
from perago.spark.session_spec import SessionSpec, difference
from perago.spark.shared_state import LOG_LEVEL, SharedState, write_no_checksum_files
from perago.spark_defaults import spark_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perago.spark")


class Sessions:
    """Provides the process's session and the sessions of its attempts. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        packages: Packages | None = None,
        *,
        app: str = "perago",
        for_attempts: bool = True,
    ) -> None:
        """Take the settings and packages of the sessions, and the name that Spark shows for them.

        With `for_attempts`, a session on a cluster leaves room for other drivers, and gives executors back when it is idle.
        """
        self._app, self._for_attempts = app, for_attempts
        self._idle = IdleTimer(settings.spark_idle, self._stop_if_idle)
        self._must_stop = False
        self._settings = settings
        self._packages = packages or Packages()
        self._writes_branches = packages is not None
        self._lock = threading.Condition()  # notified when no attempt uses the JVM any more
        self._session: SparkSession | None = None
        self._jvm: Mapping[str, str] = {}
        self._remove_scratch: Callable[[], None] | None = None
        self._chose_python = False
        self._for_checks: tuple[dict[str, str], SparkSession] | None = None
        self._scratch: Path | None = None
        self._shared: SharedState | None = None
        self._users = 0

    def get(self, spec: SessionSpec | None = None) -> SparkSession:
        """Return the process's session, in a JVM with the settings that a task needs. Creates it if there is none.

        A running JVM with other settings is replaced once no attempt uses it.  Without `spec`, any JVM will do.
        """
        with self._lock:
            while self._is_unsuitable(spec) and self._users:
                self._lock.wait()
            if spec is not None and self._is_unsuitable(spec):
                log.info(
                    "task %s needs a Spark with other settings, starting another: %s",
                    *(spec.task, difference(self._jvm, spec.jvm)),
                )
                self._end_jvm()
            if self._session is None or not is_usable(self._session):
                self._for_checks = None
                own = self._jvm if spec is None else spec.jvm
                try:
                    self._session = self._make(own)
                except Exception:
                    if own:
                        stop_jvm()  # a JVM that was started with these settings must not serve another task
                    raise
            self._begin_idle()
            return self._session

    def warm_up(self, spec: SessionSpec) -> None:
        """Start creating the session on another thread, while the attempt that needs it downloads its input."""
        # Set the environment here, not on that thread: after a body, it is restored to its state before the body.
        self._choose_python(self._master(spec.jvm))
        if self._session is None or self._is_unsuitable(spec):
            threading.Thread(
                target=self._get_or_log, args=[spec], name="perago-spark-start", daemon=True
            ).start()

    def scratch(self) -> Path:
        """Return the scratch folder of the running session."""
        assert self._scratch is not None  # noqa: S101 - callers have a session
        return self._scratch

    def for_checks(self, sql: Mapping[str, str] | None = None) -> SparkSession:
        """Return a session for table checks with a task's settings of SQL, in which each query is one Spark job.

        Adaptive execution is off, because it would start a job per shuffle.
        """
        session, wanted = self.get(), dict(sql or {})
        with self._lock:
            if self._for_checks is None or self._for_checks[0] != wanted:
                made = session.newSession()
                for key, value in {**wanted, "spark.sql.adaptive.enabled": "false"}.items():
                    made.conf.set(key, value)
                self._for_checks = wanted, made
            return self._for_checks[1]

    @contextlib.contextmanager
    def in_use(self, spec: SessionSpec | None = None) -> Iterator[SparkSession]:
        """Yield a new session for one attempt. Shared state is restored when the last running attempt ends.

        Raises `TaskFailed` if code or files that the task needs cannot be sent to the executors.
        """
        spec = spec or SessionSpec()
        with self._lock, contextlib.ExitStack() as opened:
            process_session = self.get(spec)
            py_files = self._enter_python_files(spec, opened)
            first = self._users == 0
            if runs_here(self._master(self._jvm)):
                share_modules(process_session.sparkContext, self.scratch())
            if first:
                self._shared = SharedState(process_session)
            self._users += 1
            opened.callback(self._release, process_session)
            self._ship(process_session, spec, py_files)
            session = process_session.newSession()
            for key, value in spec.sql.items():
                session.conf.set(key, value)
            _make_default(session)
            closes = opened.pop_all()
        with closes:
            yield session

    def _enter_python_files(self, spec: SessionSpec, opened: contextlib.ExitStack) -> Path | None:
        files = (*self._settings.spark_files.py_files, *spec.py_files)
        try:
            return opened.enter_context(python_files(files, self.scratch()))
        except (OSError, BadZipFile) as error:
            raise TaskFailed(f"the Python files of the task cannot be read: {error}") from error

    def _ship(self, process_session: SparkSession, spec: SessionSpec, py_files: Path | None) -> None:
        """Send the task's code to executors on other machines. What is sent is removed with the shared state."""
        if runs_here(self._master(self._jvm)):
            return
        try:
            ship_modules(process_session.sparkContext, self.scratch(), spec.modules, py_files)
        except (RuntimeConfigError, OSError) as error:
            raise TaskFailed(f"the task's code cannot be sent to Spark's executors: {error}") from error

    def _release(self, process_session: SparkSession) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._restore(process_session)
                self._begin_idle()
                self._lock.notify_all()

    def check_final_state(self, session: SparkSession, *, base: str | None) -> None:
        """Raise `TaskFailed` if an attempt stopped Spark, left a query running, or created tables that will be lost.

        `base` is the URI of its workspace, None if it publishes nothing.
        """
        if reason := why_unusable(session):
            raise TaskFailed(reason)
        if self._shared is None or self._users > 1:
            return  # concurrent attempts in one process: the owner is unknown
        if queries := self._shared.running_queries():
            raise TaskFailed(
                f"the task left a streaming query running: {', '.join(queries)}; "
                "wait for it in the body (awaitTermination()), or stop it there"
            )
        if base is not None and (created := self._shared.new_in_catalog(base)):
            raise TaskFailed(
                f"the task created {', '.join(created)} in Spark's own catalog (saveAsTable, CREATE TABLE or DATABASE), "
                "which is not published; write tables with workspace.write(df, path), or drop it before the task returns"
            )

    def note_task(self, task_id: str) -> None:
        """Write down that a task uses the session's UI, if it has one, so that `perago show` can link to it."""
        session, scratch = self._session, self._scratch
        if self._settings.spark_ui and session is not None and scratch is not None:
            try:
                if address := session.sparkContext.uiWebUrl:
                    note_ui(scratch, address, task_id)
            except Exception as error:
                log.warning("could not note the Spark UI of task %s", task_id, exc_info=error)

    @property
    def root(self) -> Path:
        """The root below which the session keeps its files."""
        return self._settings.root

    @property
    def users(self) -> int:
        """The number of attempts that are using the session."""
        return self._users

    def _begin_idle(self) -> None:
        if self._must_stop:
            self._idle.restart()

    def _stop_if_idle(self) -> None:
        """Stop a session that no attempt uses. The next attempt starts another."""
        with self._lock:
            if self._users or self._session is None:
                return
            log.info(
                "stopping the Spark session, which no attempt has used for %g s", self._settings.spark_idle
            )
            if self._scratch is not None:
                forget_ui(self._scratch)
            # The JVM ends too: the next attempt may need one with other settings.
            self._end_jvm()

    def _restore(self, process_session: SparkSession) -> None:
        shared, self._shared = self._shared, None
        try:
            if is_usable(process_session) and shared is not None:
                shared.restore()
                _make_default(process_session)
                return
        except Exception as error:
            log.warning("could not restore Spark's state, the next attempt gets a new Spark", exc_info=error)
        # This also stops a context that the body created after stopping ours, because it lacks our configuration.
        stop_spark()

    def _get_or_log(self, spec: SessionSpec) -> None:
        try:
            with self._lock:
                # If another attempt uses the JVM, the attempt itself waits until it may replace it.
                if not (self._users and self._is_unsuitable(spec)):
                    self.get(spec)
        except Exception as error:
            log.warning("Spark did not start, the next attempt retries", exc_info=error)

    def _master(self, jvm: Mapping[str, str]) -> str:
        return jvm.get("spark.master", self._settings.spark_master)

    def _is_unsuitable(self, spec: SessionSpec | None) -> bool:
        """Return whether there is a JVM with other settings than a task needs, even if its Spark has been stopped."""
        return spec is not None and self._session is not None and self._jvm != spec.jvm

    def _choose_python(self, master: str) -> None:
        """Make Spark use this process's Python and packages, not the Python on PATH, if executors run here."""
        if runs_here(master):
            self._chose_python = "PYSPARK_PYTHON" not in os.environ or self._chose_python
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        elif self._chose_python:
            os.environ.pop("PYSPARK_PYTHON", None)
            self._chose_python = False

    def _end_jvm(self) -> None:
        """Stop Spark and its JVM, and remove its files."""
        self._session = self._for_checks = None
        stop_jvm()
        if self._remove_scratch is not None:
            atexit.unregister(self._remove_scratch)
            self._remove_scratch()
            self._remove_scratch = None

    def _make(self, own: Mapping[str, str]) -> SparkSession:
        began = time.monotonic()
        check_reachable(self._master(own))
        forget_dead_jvm()
        settings = replace(self._settings, spark_master=self._master(own))
        scratch = self._scratch = own_folder(settings.root / "spark", "session")
        conf = session_conf(settings, scratch, os.environ, own)
        if self._for_attempts:
            known = {**spark_defaults(os.environ), **conf}
            defaults = cluster_defaults(settings.spark_master, settings.spark_idle, known)
            conf = {**{key: value for key, value in defaults.items() if key not in known}, **conf}
            self._must_stop = must_stop(settings.spark_master, {**known, **conf})
        if conf.get("spark.app.name") == "perago":
            conf["spark.app.name"] = self._app
        self._choose_python(settings.spark_master)
        session = self._start(settings, conf, log_options(scratch, os.environ))
        self._jvm = dict(own)
        session.sparkContext.setLogLevel(LOG_LEVEL)
        write_no_checksum_files(session)
        if self._writes_branches and PROTOCOL_KEY not in {**spark_defaults(os.environ), **conf}:
            install(session, scratch)
        if runs_here(settings.spark_master):
            share_modules(session.sparkContext, scratch)
        self._remove_scratch = partial(end, session, scratch)
        atexit.register(self._remove_scratch)
        log.info("the Spark session started in %.1f s", time.monotonic() - began)
        return session

    def _start(self, settings: Settings, conf: Mapping[str, str], log_conf: tuple[str, ...]) -> SparkSession:
        packages, environ = self._packages, os.environ
        if found := packages.with_cached_jars(conf, environ):
            return start_session(settings, found, log_conf)
        complete = packages.with_packages(conf, environ)
        with packages_lock({**spark_defaults(environ), **complete}, environ):
            # Another process may have fetched them while this one waited.
            if found := packages.with_cached_jars(conf, environ):
                return start_session(settings, found, log_conf)
            session = start_session(settings, complete, log_conf)
            if packages.names:
                packages.remember_files(conf, environ, dict(session.sparkContext.getConf().getAll()))
            return session


class AttemptSession:
    """The Spark session of one attempt, used by its workspace and its checks."""

    def __init__(self, sessions: Sessions, spec: SessionSpec) -> None:
        self._sessions = sessions
        self._spec = spec
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """Return the attempt's session while it is in use, and otherwise the process's session."""
        return self._session or self._sessions.get(self._spec)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[SparkSession]:
        """Create the attempt's session at the start of the `with` block, and release it at the end."""
        with self._sessions.in_use(self._spec) as session:
            self._session = session
            yield session
        # From here on, an idle session may stop.
        self._session = None

    def note_task(self, task_id: str) -> None:
        """Write down that a task uses the session's UI, if it has one."""
        self._sessions.note_task(task_id)

    def for_checks(self) -> SparkSession:
        """Return the session for table checks. Raises `TaskFailed` if the body has stopped Spark."""
        if self._session is not None and (reason := why_unusable(self._session)):
            raise TaskFailed(reason)
        return self._sessions.for_checks(self._spec.sql)

    def check_final_state(self, *, base: str | None) -> None:
        """Raise `TaskFailed` if the body stopped Spark, left a query running, or created tables that will be lost."""
        if self._session is not None:
            self._sessions.check_final_state(self._session, base=base)

    @property
    def is_only_attempt(self) -> bool:
        """True if no other attempt in this process is using Spark."""
        return self._sessions.users == 1


def why_unusable(session: SparkSession) -> str | None:
    """Return why a session is no longer usable, or None if it is usable."""
    if is_usable(session):
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
