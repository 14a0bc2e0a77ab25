"""Makes this process's modules importable in Spark's Python workers.

Spark sends a function to its Python workers as a reference to the function's module.  If all executors are on this
machine, a Python worker finds every module that this process finds, because it gets the same folders on its path, in
the same order.  For a task file outside any package (`--tasks tasks.py`), Perago generates a module name, and a small
loader with that name in the session's scratch folder runs the file.

Executors on other machines get the project's own modules as an archive (`project_code`), which they unpack and put on
the path of their Python workers.

Spark starts new workers when their environment changes, so no worker keeps an old version of a file that changed.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from perago.declare.discovery import FileModule, loaded_files
from perago.spark.project_code import folder_files, own_folders, project_files, write_archive

if TYPE_CHECKING:
    from pyspark import SparkContext

_CODE = "SPARK_PERAGO_CODE"
"""Environment variable of Python workers on other machines, which names the archive that they import from."""

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
    folders = [configured, *own_folders(), _loaders(loaded_files(), scratch)]
    context.environment["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)


def ship_modules(
    context: SparkContext, scratch: Path, modules: Iterable[str], sent: Path | None = None
) -> None:
    """Send the project's modules that these import to executors on other machines, with the files in the folder `sent`.

    They serve Python workers for functions created after this call.  Raises `RuntimeConfigError` if a module cannot be
    sent.
    """
    files = project_files(modules)
    if sent is not None:
        files |= folder_files(sent)
    archive = write_archive(files, scratch)
    includes = context._python_includes
    assert includes is not None  # noqa: S101 - a running context has this list
    if archive.name not in includes:
        context.addArchive(str(archive))
        includes.append(archive.name)
    # A Python worker keeps the modules that it has imported, and Spark reuses it only in the same environment.
    context.environment[_CODE] = archive.stem


@contextmanager
def python_files(files: tuple[Path, ...], scratch: Path) -> Iterator[Path | None]:
    """Make `.py`, `.zip` and `.egg` files importable in this process, until the end of the `with` block.

    Yields the folder with their unpacked content, or None if there are no files.
    """
    if not files:
        yield None
        return
    folder = _unpacked(files, scratch)
    sys.path.insert(1, str(folder))
    try:
        yield folder
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        # Another task may send other files under the same names.
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


def _unpacked(files: tuple[Path, ...], scratch: Path) -> Path:
    """Return a folder with the content of Python files. Its name depends on their names and contents."""
    digest = sha256()
    for file in files:
        digest.update(f"{file.name} {sha256(file.read_bytes()).hexdigest()}\n".encode())
    folder = scratch / f"py-files-{digest.hexdigest()[:12]}"
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        for file in files:
            if file.suffix == ".py":
                shutil.copyfile(file, unfinished / file.name)
            else:
                with zipfile.ZipFile(file) as archive:
                    archive.extractall(unfinished)
        unfinished.rename(folder)
    return folder


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
