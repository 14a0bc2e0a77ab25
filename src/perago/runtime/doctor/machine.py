"""The machine that Perago runs on: Python, Java and Spark.

Java and PySpark are for Spark tasks alone: without PySpark a missing Java is nothing to mend.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from perago.errors import install_extra
from perago.runtime.doctor.finding import Finding

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
_SECONDS = 30.0
_INSTALL_JAVA = (
    "install a Java 17 or later (for example openjdk-17-jre-headless), or set JAVA_HOME to the folder of one"
)
_WITH_SPARK = ("pyspark", "pandas", "pyarrow")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')


def look_at_python(perago: str) -> Finding:
    """The Python that runs this, and the Perago."""
    says = f"{platform.python_version()} at {sys.executable}, with Perago {perago}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("Python", "fail", says, "make an environment with Python 3.11 or later")
    return Finding("Python", "ok", says)


def look_at_spark() -> Finding:
    """PySpark and what it needs, as they are installed; nothing is started."""
    found = {name: _installed(name) for name in _WITH_SPARK}
    if found["pyspark"] is None:
        return Finding(
            "Spark",
            "ok",
            "PySpark is not installed, which only Spark tasks need",
            f"for those run `{install_extra('spark')}`",
        )
    missing = [name for name, installed in found.items() if installed is None]
    if missing:
        says = f"PySpark {found['pyspark']} is there, but {' and '.join(missing)} is missing"
        return Finding("Spark", "fail", says, f"run `{install_extra('spark')}`")
    return Finding("Spark", "ok", ", ".join(f"{name} {installed}" for name, installed in found.items()))


def look_at_java(environ: Mapping[str, str], *, needed: bool) -> Finding:
    """The Java that Spark would start: that of JAVA_HOME, else the one on PATH."""
    home = environ.get("JAVA_HOME", "").strip()
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH", ""))
    if java is None or not Path(java).is_file():
        where = (
            f"JAVA_HOME={home} has no bin/java" if home else "there is none on PATH, and JAVA_HOME is not set"
        )
        if needed:
            return Finding("Java", "fail", f"{where}: Spark tasks cannot run", _INSTALL_JAVA)
        return Finding("Java", "ok", f"{where}; only Spark tasks need one")
    answer = _answer(java)
    match = _VERSION.search(answer)
    if match is None:
        return Finding(
            "Java", "fail" if needed else "warn", f"{java} does not run: {answer[:200]}", _INSTALL_JAVA
        )
    says = f"{match[1]}{match[2]} at {java}"
    if int(match[1]) < OLDEST_JAVA:
        return Finding("Java", "fail" if needed else "warn", f"{says} is too old for Spark", _INSTALL_JAVA)
    return Finding("Java", "ok", says)


def has_spark() -> bool:
    """Whether Spark tasks are meant to run here."""
    return _installed("pyspark") is not None


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _answer(java: str) -> str:
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return f"it gave no answer within {_SECONDS:g} s"
    except OSError as error:
        return str(error.strerror)
    return done.stderr + done.stdout or "it says nothing"
