"""The Spark session that a task needs: its own settings, the files that it names, and the modules of its code.

A value of this module says when two attempts can use the same JVM: if their `jvm` settings are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from perago.declare.spark_controls import is_uri, shown
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.settings import Settings

_LISTS = {"packages": "spark.jars.packages", "jars": "spark.jars", "archives": "spark.archives"}
_SIZES = frozenset({"spark.driver.memory", "spark.executor.memory", "spark.executor.cores"})


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The settings, files and modules of one task. The default is a task without any of its own."""

    task: str = ""
    jvm: Mapping[str, str] = field(default_factory=dict)
    """Settings that need a JVM that was started with them."""
    sql: Mapping[str, str] = field(default_factory=dict)
    """Settings of one attempt's session."""
    py_files: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    """The modules whose code executors must be able to import."""

    def without_sizes(self) -> SessionSpec:
        """Return the same without memory and cores, for trials: all of a test process share one JVM where possible."""
        return replace(self, jvm={key: value for key, value in self.jvm.items() if key not in _SIZES})


def session_spec(task: TaskDefinition) -> SessionSpec:
    """Return the session that a task needs. Raises `RuntimeConfigError` if a file that it names does not exist."""
    modules = (task.fn.__module__,)
    controls = task.spark
    if controls is None:
        return SessionSpec(task.name, modules=modules)
    folder = Path(task.place.file).absolute().parent
    jvm = dict(controls.jvm_conf)
    for name, key in _LISTS.items():
        items = getattr(controls, name)
        if items:
            jvm[key] = ",".join(items if name == "packages" else _uris(task, name, folder, items))
    py_files = tuple(_existing(task, "py_files", folder / one, one) for one in controls.py_files)
    return SessionSpec(task.name, jvm, controls.session_conf, py_files, modules)


def settings_for(task: TaskDefinition, settings: Settings) -> Settings:
    """Return the settings with the Spark master of a task, if it declares one."""
    master = task.spark.master if task.spark is not None else None
    return settings if master is None else replace(settings, spark_master=master)


def file_uri(path: str) -> str:
    """Return the URI of a file, which may end in `#name`. A text that is a URI already is returned unchanged."""
    if is_uri(path):
        return path
    name, hash_, fragment = path.partition("#")
    return f"{Path(name).absolute().as_uri()}{hash_}{fragment}"


def difference(now: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Describe the settings in which two JVMs differ, for the log. Secrets are masked."""
    parts = []
    for key in sorted(now.keys() | wanted.keys()):
        if now.get(key) != wanted.get(key):
            parts.append(f"{key}={_shown(key, wanted)} (was {_shown(key, now)})")
    return ", ".join(parts)


def _shown(key: str, conf: Mapping[str, str]) -> str:
    return shown(key, conf[key]) if key in conf else "not set"


def _uris(task: TaskDefinition, name: str, folder: Path, items: Iterable[str]) -> list[str]:
    uris = []
    for given in items:
        path, hash_, fragment = given.partition("#")
        local = None if is_uri(given) else f"{_existing(task, name, folder / path, given)}{hash_}{fragment}"
        uris.append(file_uri(local or given))
    return uris


def _existing(task: TaskDefinition, name: str, path: Path, given: str) -> Path:
    if not path.is_file():
        raise RuntimeConfigError(
            f"{task.place}: SparkControls.{name} = {given!r}: there is no file {path}; paths are relative to the task's file"
        )
    return path.resolve()
