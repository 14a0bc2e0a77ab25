"""What a Spark session is configured with.

    Perago's defaults  <  spark-defaults.conf  <  PERAGO_SPARK_MASTER  <  PERAGO_SPARK_CONF

The settings have the master that comes of it (`perago.spark_defaults`).

A quick session's options for its JVM come before those that are set, so that the JVM takes the latter.

The defaults suit a small machine with a local master; on a cluster Spark's own sizes stay.  Keys to a lake are never
here: a session's configuration is on the JVM's command line, where everybody can read it.

What Spark's JVM logs: warnings and errors, without those that every start brings and nobody can act on.

The lines go to the attempt that starts Spark, among what its body prints.  An operator's own configuration of log4j wins.

Where Perago keeps what a Spark session would otherwise work out anew at each start: the user's cache folder.

The packages that a session needs for Perago itself, and their files once they have been found.

Spark has Ivy resolve packages anew at every start, which takes as long as all the rest of it.  So a session that asked for
nothing but these leaves a list of their files in the user's cache folder, and the next one is given the files.

The rule: a list counts only while every file on it is as long as it was.  Else Ivy resolves, and so it does where the
operator names packages or jars too: one set must come of all of them.
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

from perago.settings import Settings
from perago.spark_defaults import parse_conf, spark_defaults

_GIB = 1024**3
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")


def is_local(master: str) -> bool:
    """Whether a master runs everything in this process's JVM."""
    return master == "local" or master.startswith("local[")


def runs_here(master: str) -> bool:
    """Whether all executors of a master are on this machine, where a folder is the same for all."""
    return is_local(master) or master.startswith("local-cluster[")


def session_conf(settings: Settings, scratch: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The configuration to build a session with; `scratch` is a folder of this process's own."""
    said = parse_conf(settings.spark_conf)
    known = spark_defaults(environ)
    defaults = {"spark.app.name": "perago", **_defaults(settings, scratch, environ)}
    chosen = {key: value for key, value in defaults.items() if key not in known}
    return {**chosen, **said, "spark.master": settings.spark_master}


def is_quick(settings: Settings) -> bool:
    """Whether a session is to start quickly rather than run fast for long: only where its JVM does all the work."""
    return settings.spark_session == "quick" and is_local(settings.spark_master)


def with_jvm_options(
    conf: Mapping[str, str], options: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The configuration with these options for the session's JVM, which takes one collector and no more."""
    set_before = conf.get(_JVM_OPTIONS) or spark_defaults(environ).get(_JVM_OPTIONS) or ""
    if _COLLECTOR.search(set_before):
        options = [option for option in options if not _COLLECTOR.search(option)]
    return {**conf, _JVM_OPTIONS: " ".join(filter(None, [*options, set_before]))}


def _defaults(settings: Settings, scratch: Path, environ: Mapping[str, str]) -> dict[str, str]:
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # The same rows on every machine, wherever it stands.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # Spark commits below a folder that only this execution sees, and Perago publishes after the job has ended:
        # renaming everything a second time, and marking success, would tell nobody anything.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if not is_local(settings.spark_master):
        return common
    cores = os.cpu_count() or 1
    # Another Python may not have Perago.
    own_python = environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    return {
        **common,
        **({"spark.python.daemon.module": "perago.spark.python_daemon"} if own_python else {}),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{_driver_gib()}g",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        # Delta cuts the log of even the smallest table into 50 parts.
        "spark.databricks.delta.snapshotPartitions": str(cores),
        # One process reads the folders either way; a job for it only costs.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    }


def _driver_gib() -> int:
    """An eighth of the machine, between 1 and 8 GiB: several executors have a session each."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 1
    return max(1, min(8, total // 8 // _GIB))


_OF_EVERY_START = (
    "org.apache.spark.util.Utils",  # the host's name is a loopback address
    "org.apache.spark.SparkConf",  # the cluster manager may override the scratch folder
    "org.apache.hadoop.util.NativeCodeLoader",  # Hadoop's native library is not there
)
_CONFIGURATION = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def log_options(scratch: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """JVM options for the driver's log; none where the operator configures it, or the path would be torn at a space."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if " " in str(scratch) or (folder and any(Path(folder).glob("log4j2*"))):
        return ()
    file = scratch / "log4j2.properties"
    quiet = "".join(
        f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = error\n"
        for number, name in enumerate(_OF_EVERY_START)
    )
    file.write_text(_CONFIGURATION + quiet, encoding="utf-8")
    return (f"-Dlog4j2.configurationFile={file.as_uri()}",)


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder, which need not be there; None for a user without a home."""
    try:
        said = Path(environ.get("XDG_CACHE_HOME", ""))
        # One that is not absolute counts for nothing, as that standard has it: it would be elsewhere for who makes it.
        cache = said if said.is_absolute() else Path.home() / ".cache"
    except (ValueError, RuntimeError):
        # RuntimeError: a user without a home, as in containers that run under any number.
        return None
    return cache / "perago" / "spark"


_PACKAGES, _EXCLUDES, _JARS = "spark.jars.packages", "spark.jars.excludes", "spark.jars"
_WHERE = ("spark.jars.ivy", "spark.jars.ivySettings", "spark.jars.repositories")
"""What else decides which files Ivy finds."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages by their Maven coordinates, without some of what they would bring along."""

    names: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def resolved_by_ivy(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """The configuration with these packages after those that are set."""
        known, complete = {**spark_defaults(environ), **conf}, {**conf}
        for key, items in ((_PACKAGES, self.names), (_EXCLUDES, self.excludes)):
            if items:
                complete[key] = ",".join([*filter(None, [known.get(key)]), *items])
        return complete

    def by_their_files(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str] | None:
        """The configuration with the files that were found before; None where they are not known, or not all there."""
        kept = self._list_of_files(conf, environ)
        if kept is None:
            return None
        try:
            sizes = json.loads(kept.read_text(encoding="utf-8"))
            if not sizes or any(_file(uri).stat().st_size != size for uri, size in sizes.items()):
                return None
        except (OSError, ValueError, AttributeError):
            return None
        # With a local master every task sees the driver's files: no need to serve copies of them.
        scheme = "local:" if is_local(conf.get("spark.master", "")) else "file:"
        return {**conf, _JARS: ",".join(scheme + uri.removeprefix("file:") for uri in sizes)}

    def remember_files(
        self, conf: Mapping[str, str], environ: Mapping[str, str], started: Mapping[str, str]
    ) -> None:
        """Keep the list of files that Ivy found.

        `conf` is what `by_their_files` was asked with, `started` what the session that came of it says of itself.
        """
        kept = self._list_of_files(conf, environ)
        found = started.get(_JARS, "").split(",")
        # A session that was there before us may have asked for something else.
        if kept is None or started.get(_PACKAGES) != ",".join(self.names) or not self._are_all_in(found):
            return
        with contextlib.suppress(OSError, ValueError):
            sizes = {uri: _file(uri).stat().st_size for uri in found}
            kept.parent.mkdir(parents=True, exist_ok=True)
            # Whoever reads it finds a whole one, and a full disk leaves no part of one behind.
            with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
                made = Path(folder) / kept.name
                made.write_text(json.dumps(sizes), encoding="utf-8")
                made.rename(kept)

    def _are_all_in(self, uris: Sequence[str]) -> bool:
        wanted = ["-".join(name.split(":")[1:]) + ".jar" for name in self.names]
        return all(any(uri.endswith(name) for uri in uris) for name in wanted)

    def _list_of_files(self, conf: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
        """Where the list is kept, or would be; None where Ivy has to do it."""
        known = {**spark_defaults(environ), **conf}
        folder = cache_folder(environ)
        if folder is None or not self.names or any(known.get(key) for key in (_PACKAGES, _EXCLUDES, _JARS)):
            return None
        asked = [self.names, self.excludes, [known.get(key) for key in _WHERE], version("pyspark")]
        return folder / f"{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]}.jars.json"


def _file(uri: str) -> Path:
    where = urlsplit(uri)
    if where.scheme != "file":
        raise ValueError(f"{uri} is not a file of this machine")
    return Path(unquote(where.path))
