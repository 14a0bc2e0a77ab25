"""Spark's configuration outside any session: spark-defaults.conf, PERAGO_SPARK_CONF, and the master that results.

    Perago's defaults  <  spark-defaults.conf  <  PERAGO_SPARK_CONF  <  PERAGO_SPARK_MASTER  <  a task's SparkControls

This precedence applies to every key.  The master is chosen here, once, so that sessions, placements and checks cannot
disagree about it.  This module does not import pyspark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from perago.errors import RuntimeConfigError

_MASTER = "spark.master"
_LINE = re.compile(r"\s*([^\s=:#]+)\s*[=:\s]\s*(.*?)\s*$")


def chosen_master(environ: Mapping[str, str], *, default: str) -> tuple[str, str]:
    """Return the effective Spark master and its source: a variable, `spark-defaults.conf` or `default`."""
    try:
        configured = parse_conf(environ.get("PERAGO_SPARK_CONF", "")).get(_MASTER)
    except RuntimeConfigError:
        configured = None  # the code that uses the pairs reports the error
    if master := environ.get("PERAGO_SPARK_MASTER", "").strip():
        return master, "environment"
    if configured:
        return configured, "PERAGO_SPARK_CONF"
    if master := spark_defaults(environ).get(_MASTER, ""):
        return master, "spark-defaults.conf"
    return default, "default"


def parse_conf(text: str) -> dict[str, str]:
    """Parse PERAGO_SPARK_CONF: `key=value` pairs separated by `;`. Raises `RuntimeConfigError` for anything else."""
    pairs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise RuntimeConfigError(f"PERAGO_SPARK_CONF: {item!r} is not key=value; pairs are cut at ';'")
        pairs[key.strip()] = value.strip()
    return pairs


def spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in spark-defaults.conf, from the folder where spark-submit looks for it.

    Returns {} if there is no such file.
    """
    folder = environ.get("SPARK_CONF_DIR") or _conf_folder(environ)
    file = Path(folder) / "spark-defaults.conf" if folder else None
    try:
        text = file.read_text(encoding="utf-8") if file is not None else ""
    except OSError:
        return {}
    found = (_LINE.match(line) for line in text.splitlines())
    return {match[1]: match[2] for match in found if match}


def _conf_folder(environ: Mapping[str, str]) -> str | None:
    """Return the `conf` folder in SPARK_HOME, or else in the PySpark package. Returns None if there is neither."""
    if home := environ.get("SPARK_HOME"):
        return os.path.join(home, "conf")
    package = find_spec("pyspark")
    return os.path.join(os.path.dirname(package.origin), "conf") if package and package.origin else None
