"""What a Spark session is configured with.

    Perago's defaults  <  spark-defaults.conf  <  PERAGO_SPARK_MASTER  <  PERAGO_SPARK_CONF

The settings have the master that comes of it (`perago.spark_defaults`).

A quick session's options for its JVM come before those that are set, so that the JVM takes the latter.

The defaults suit a small machine with a local master; on a cluster Spark's own sizes stay.  Keys to a lake are never
here: a session's configuration is on the JVM's command line, where everybody can read it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

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
