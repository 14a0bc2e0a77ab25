"""Configuration of a Spark session: settings, log, cache folder, packages.

    Perago's defaults  <  spark-defaults.conf  <  PERAGO_SPARK_CONF  <  PERAGO_SPARK_MASTER  <  a task's SparkControls

`perago.spark_defaults` picks the master.  The defaults suit a small machine with a local master.  On a cluster, Spark's
own default sizes are kept.  Lake credentials are never part of the configuration: it appears on the JVM's command line,
which everyone on the machine can read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perago.errors import RuntimeConfigError
from perago.settings import Settings
from perago.spark_defaults import parse_conf, spark_defaults

_GIB = 1024**3
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")

_NOISY_AT_START = (
    "org.apache.spark.util.Utils",  # the host name resolves to a loopback address
    "org.apache.spark.SparkConf",  # the cluster manager may override the scratch folder
    "org.apache.hadoop.util.NativeCodeLoader",  # Hadoop's native library is missing
)
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

PACKAGES, _EXCLUDES, _JARS = "spark.jars.packages", "spark.jars.excludes", "spark.jars"
_ARCHIVES = "spark.archives"
_LISTS = frozenset({PACKAGES, _JARS, _ARCHIVES})
"""Settings that are lists."""
_IVY_KEYS = ("spark.jars.ivy", "spark.jars.ivySettings", "spark.jars.repositories")
"""Settings other than the packages themselves that affect which files Ivy finds."""


def is_local(master: str) -> bool:
    """Return whether this master runs everything in this process's JVM."""
    return master == "local" or master.startswith("local[")


def runs_here(master: str) -> bool:
    """Return whether all executors of this master run on this machine and share its folders."""
    return is_local(master) or master.startswith("local-cluster[")


def session_conf(
    settings: Settings, scratch: Path, environ: Mapping[str, str], own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the configuration for a new session. `scratch` is a folder private to this process.

    `own` are the settings of a task.  They win, and lists of files and packages are added to those of the operator.
    """
    explicit = parse_conf(settings.spark_conf)
    known = spark_defaults(environ)
    defaults = {"spark.app.name": "perago", **_defaults(settings, scratch, environ)}
    chosen = {key: value for key, value in defaults.items() if key not in known}
    conf = {**chosen, **_observation(settings), **explicit, "spark.master": settings.spark_master}
    files = settings.spark_files
    given = {_JARS: ",".join(files.jars), _ARCHIVES: ",".join(files.archives)}
    for more in (given, own or {}):
        for key, value in more.items():
            before = {**known, **conf}.get(key) if key in _LISTS else None
            if value:
                conf[key] = f"{before},{value}" if before else value
    return conf


def _observation(settings: Settings) -> dict[str, str]:
    """Return the configuration of the UI and the event log. Creates the event log's folder."""
    conf = {"spark.ui.enabled": "true"} if settings.spark_ui else {}
    if (place := settings.spark_event_log) is None:
        return conf
    if place.startswith("/"):
        folder = Path(place)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeConfigError(
                f"cannot write Spark's event logs to {folder} ({error.strerror}): correct PERAGO_SPARK_EVENT_LOG"
            ) from error
        place = folder.as_uri()
    return {**conf, "spark.eventLog.enabled": "true", "spark.eventLog.dir": place}


def is_quick(settings: Settings) -> bool:
    """Return whether to prefer a quick start over long-run speed. True only if the session's JVM does all the work."""
    return settings.spark_session == "quick" and is_local(settings.spark_master)


def with_jvm_options(
    conf: Mapping[str, str], options: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Add options for the session's JVM to the configuration.

    The new options come first, so that options already set take precedence.  The JVM accepts only one garbage
    collector, so Perago's choice is left out if another one is set.
    """
    set_before = conf.get(_JVM_OPTIONS) or spark_defaults(environ).get(_JVM_OPTIONS) or ""
    if _COLLECTOR.search(set_before):
        options = [option for option in options if not _COLLECTOR.search(option)]
    return {**conf, _JVM_OPTIONS: " ".join(filter(None, [*options, set_before]))}


def _defaults(settings: Settings, scratch: Path, environ: Mapping[str, str]) -> dict[str, str]:
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        # Executors report their memory with every task, not only in their heartbeat, which short tasks never meet.
        "spark.executor.metrics.pollingInterval": "200ms",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Produce the same rows on every machine, whatever its time zone.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # Spark commits to a folder that only this execution sees, and Perago publishes after the job has ended, so
        # there is no need to rename every file a second time or to write a success marker.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if not is_local(settings.spark_master):
        return common
    cores = os.cpu_count() or 1
    # Perago may not be installed in another Python.
    own_python = environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    return {
        **common,
        **({"spark.python.daemon.module": "perago.spark.python_daemon"} if own_python else {}),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{_driver_gib()}g",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        # Delta splits the log of even the smallest table into 50 partitions.
        "spark.databricks.delta.snapshotPartitions": str(cores),
        # One process lists the folders either way, so a Spark job for it would only be overhead.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    }


def _driver_gib() -> int:
    """Return the driver's memory in GiB: an eighth of the machine's, but at least 1 and at most 8.

    Several executors may share the machine, and each has its own session.
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 1
    return max(1, min(8, total // 8 // _GIB))


def log_options(scratch: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return JVM options that enable logging of warnings and errors.

    Warnings that appear at every start and that nobody can act on are left out.

    The log lines become part of the output of the attempt that starts Spark.  Returns no options if the operator
    configures log4j, or if Spark would split the path at a space.
    """
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if " " in str(scratch) or (folder and any(Path(folder).glob("log4j2*"))):
        return ()
    file = scratch / "log4j2.properties"
    quiet = "".join(
        f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = error\n"
        for number, name in enumerate(_NOISY_AT_START)
    )
    file.write_text(_LOG4J + quiet, encoding="utf-8")
    return (f"-Dlog4j2.configurationFile={file.as_uri()}",)


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's cache folder for Spark, even if it does not exist. Returns None if the user has no home."""
    try:
        configured = Path(environ.get("XDG_CACHE_HOME", ""))
        # The XDG standard ignores relative paths, and the process that creates the archive runs in another folder.
        cache = configured if configured.is_absolute() else Path.home() / ".cache"
    except (ValueError, RuntimeError):
        # RuntimeError: the user has no home, as in containers with an arbitrary user id.
        return None
    return cache / "perago" / "spark"


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages that Perago itself needs, as Maven coordinates, and dependencies to exclude.

    Ivy resolves packages at every startup, which doubles the startup time.  So a session that requested
    only these packages saves a list of their files in the user's cache folder, and later sessions use the files
    directly.  The list is valid only as long as no file's size has changed.  Ivy resolves the packages again if the list is
    not valid, or if the operator names packages or jars, because all of them must be resolved together.
    """

    names: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def with_packages(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """Return the configuration with these packages appended to the ones already set."""
        known, complete = {**spark_defaults(environ), **conf}, {**conf}
        for key, items in ((PACKAGES, self.names), (_EXCLUDES, self.excludes)):
            if items:
                complete[key] = ",".join([*filter(None, [known.get(key)]), *items])
        return complete

    def with_cached_jars(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str] | None:
        """Return the configuration with the files in the saved list as jars.

        Returns None if there is no list, or if a file is missing or has a different size.
        """
        kept = self._jar_list_path(conf, environ)
        if kept is None:
            return None
        try:
            sizes = json.loads(kept.read_text(encoding="utf-8"))
            if not sizes or any(_file(uri).stat().st_size != size for uri, size in sizes.items()):
                return None
        except (OSError, ValueError, AttributeError):
            return None
        # With a local master, every task sees the driver's files, so there is no need to serve copies of them.
        scheme = "local:" if is_local(conf.get("spark.master", "")) else "file:"
        return {**conf, _JARS: ",".join(scheme + uri.removeprefix("file:") for uri in sizes)}

    def remember_files(
        self, conf: Mapping[str, str], environ: Mapping[str, str], started: Mapping[str, str]
    ) -> None:
        """Save the list of files that Ivy found.

        `conf` is the configuration passed to `with_cached_jars`, and `started` is that of the running session.
        """
        kept = self._jar_list_path(conf, environ)
        found = started.get(_JARS, "").split(",")
        # If a session already existed before ours, it may have requested something else.
        if kept is None or started.get(PACKAGES) != ",".join(self.names) or not self._are_all_in(found):
            return
        with contextlib.suppress(OSError, ValueError):
            sizes = {uri: _file(uri).stat().st_size for uri in found}
            kept.parent.mkdir(parents=True, exist_ok=True)
            # Rename into place, so that readers only see a complete list and a full disk leaves no partial one.
            with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
                made = Path(folder) / kept.name
                made.write_text(json.dumps(sizes), encoding="utf-8")
                made.rename(kept)

    def _are_all_in(self, uris: Sequence[str]) -> bool:
        wanted = ["-".join(name.split(":")[1:]) + ".jar" for name in self.names]
        return all(any(uri.endswith(name) for uri in uris) for name in wanted)

    def _jar_list_path(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
        """Return the path of the saved list, even if it does not exist. Returns None if Ivy must resolve packages."""
        known = {**spark_defaults(environ), **conf}
        folder = cache_folder(environ)
        if folder is None or not self.names or any(known.get(key) for key in (PACKAGES, _EXCLUDES, _JARS)):
            return None
        key = [self.names, self.excludes, [known.get(name) for name in _IVY_KEYS], version("pyspark")]
        return folder / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.jars.json"


def _file(uri: str) -> Path:
    where = urlsplit(uri)
    if where.scheme != "file":
        raise ValueError(f"{uri} is not a file of this machine")
    return Path(unquote(where.path))
