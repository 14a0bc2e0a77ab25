"""Starts and stops the JVM of this process and the Spark context in it.

Several processes of a worker start their JVMs at once, and Ivy's cache is not made for that: while one process fetches a
file, others read it half-written, and their Spark does not start.  So a start that may fetch packages holds a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.errors import RuntimeConfigError
from perago.runtime.root.workdirs import remove_tree
from perago.settings import Settings
from perago.spark.appcds import archive_breaks_jvm, archive_file, quick_options, use_options
from perago.spark.config import PACKAGES, cache_folder, is_local, is_quick, with_jvm_options
from perago.spark.failures import short_reason
from perago.spark.master import remedy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perago.spark")

_JARS = "spark.jars"
_NO_FOLDER = "(no folder)"
_JVM_EXIT_SECONDS = 30
_LONGEST_FETCH = 600.0
_TRY_AGAIN_SECONDS = 0.05


@contextlib.contextmanager
def packages_lock(conf: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[None]:
    """Hold the lock of Ivy's cache during the block, if Spark may fetch packages in it.

    Sessions whose packages have been fetched before share the lock.
    """
    names, folder = conf.get(PACKAGES), cache_folder(environ)
    if not names or folder is None:
        yield
        return
    fetched = folder / f"{hashlib.sha256(names.encode()).hexdigest()[:16]}.fetched"
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):  # a cache folder that cannot be written costs only the lock
            folder.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context((folder / "packages.lock").open("ab"))
            if not _wait_for(file.fileno(), fetched.exists):
                log.warning(
                    "another process has been fetching packages for %g s, going on without waiting",
                    _LONGEST_FETCH,
                )
        yield
        with contextlib.suppress(OSError):
            fetched.touch()


def _wait_for(file: int, shared: Callable[[], bool]) -> bool:
    ends = time.monotonic() + _LONGEST_FETCH
    while time.monotonic() < ends:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, (fcntl.LOCK_SH if shared() else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        time.sleep(_TRY_AGAIN_SECONDS)
    return False


def start_session(settings: Settings, conf: dict[str, str], log_conf: tuple[str, ...]) -> SparkSession:
    """Start the JVM of this process, if none runs, and a Spark session in it.  Raises `RuntimeConfigError`."""
    if not is_quick(settings):
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
        if key != _JARS:
            builder = builder.config(key, value)
    try:
        with _keep_sigint_handler():
            _launch_jvm(conf)
            return builder.getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            packages = conf.get("spark.jars.packages")
            fetched = f"Can spark.jars.packages be fetched ({packages})? " if packages else ""
            memory = conf.get("spark.driver.memory")
            enough = f"Does this machine have spark.driver.memory={memory}? " if memory else ""
            raise RuntimeConfigError(
                "Spark did not start: is a Java 17 or later on PATH or in JAVA_HOME? "
                f"{enough}{fetched}The log has Spark's own words"
            ) from error
        if is_local(conf["spark.master"]):
            raise
        reason = short_reason(error, base=_NO_FOLDER)
        if "stopped SparkContext" in reason:
            reason = "what listens there did not accept it, so it may be no Spark master, or one of another version"
        raise RuntimeConfigError(
            f"no Spark session came about at {conf['spark.master']}: {reason}; {remedy(os.environ)}"
        ) from error


def _launch_jvm(conf: dict[str, str]) -> None:
    """Launch the JVM of this process with the whole configuration, if none runs.

    Spark adds the files of `spark.jars.packages` to `spark.jars` when its JVM starts.  A context that is given `spark.jars`
    once more loses them, and executors on other machines do not get them.
    """
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())))


def stop_spark() -> None:
    """Stop any Spark context in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    forget_dead_jvm()
    for running in (SparkSession._instantiatedSession, SparkContext._active_spark_context):
        if running is not None:
            with contextlib.suppress(Exception):
                running.stop()


def stop_jvm() -> None:
    """Stop any Spark context in this process, and the JVM that it runs in."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    stop_spark()
    if process is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(OSError):
        process.stdin.close()  # the JVM exits when this pipe closes
    try:
        process.wait(_JVM_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    forget_dead_jvm()


def is_usable(session: SparkSession) -> bool:
    """Return whether the session's JVM lives and its context has not been stopped."""
    from py4j.protocol import Py4JError

    context: Any = session.sparkContext
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def forget_dead_jvm() -> None:
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


def end(session: SparkSession, scratch: Path) -> None:
    """Stop a session, and remove its scratch folder."""
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
