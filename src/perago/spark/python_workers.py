"""Makes this process's modules importable in Spark's Python workers.

Spark sends a function to its Python workers as a reference to the function's module.  If all executors are on this
machine, a Python worker finds every module that this process finds, because it gets the same folders on its path, in
the same order.  For a task file outside any package (`--tasks tasks.py`), Perago generates a module name, and a small
loader with that name in the session's scratch folder runs the file.

Spark starts new workers when the path changes, so no worker keeps an old version of a task file that was reloaded.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from perago.declare.discovery import FileModule, loaded_files

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOADER = """\
import importlib.util
import sys

spec = importlib.util.spec_from_file_location(__name__, {file!r})
sys.modules[__name__] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


def share_modules(context: SparkContext, scratch: Path) -> None:
    """Make every module that this process can import available to Python workers started after this call."""
    configured = context.getConf().get("spark.executorEnv.PYTHONPATH")
    folders = [configured, *_own_folders(), _loaders(loaded_files(), scratch)]
    context.environment["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)


def _own_folders() -> list[str]:
    """Return the entries of `sys.path` that belong neither to Python nor to its installed packages."""
    paths = sysconfig.get_paths()
    known = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known |= {*site.getsitepackages(), site.getusersitepackages(), f"{paths['stdlib']}/lib-dynload"}
    absolute = dict.fromkeys(os.path.abspath(entry) for entry in sys.path)
    return [entry for entry in absolute if entry not in known and os.path.exists(entry)]


def _loaders(files: list[FileModule], scratch: Path) -> str | None:
    """Write a loader for each file, and return the loaders' folder. Returns None if there are no files.

    The folder's name depends on the files' names and contents.
    """
    if not files:
        return None
    versions = "\n".join(f"{one.name} {one.file} {one.digest}" for one in files)
    folder = scratch / f"python-{sha256(versions.encode()).hexdigest()[:12]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for one in files:
        (folder / f"{one.name}.py").write_text(_LOADER.format(file=str(one.file)), encoding="utf-8")
    return str(folder)
