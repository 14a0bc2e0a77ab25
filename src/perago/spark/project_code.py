"""Collects a project's own code for executors on other machines, as one archive (decision 0043).

    a task's module  →  the modules that it imports, also inside functions  →  those that these import  →  …

Only code in editable installs, and in the entries of `sys.path` that belong neither to Python nor to its installed
packages, is collected: a module as its file, a package as its whole folder, and of a namespace package only the modules
that are imported.  The rule: the archive depends only on files, never on what earlier attempts have imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import site
import sys
import sysconfig
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from perago.declare.discovery import loaded_files
from perago.declare.sources import imports_of_file
from perago.errors import RuntimeConfigError

log = logging.getLogger("perago.spark")

MOST_DATA_BYTES = 64 * 1024**2
"""The limit on a project's data files. Executors get copies of them, so larger ones belong in the workspace."""

_ON_EXECUTORS = frozenset({"perago", "pyspark", "py4j"})
_COMPILED = (".so", ".pyd")
_READABLE = 0o644 << 16
_NEVER_SENT = (".pyc", ".pyo")


def own_folders() -> list[str]:
    """Return the entries of `sys.path` that belong neither to Python nor to its installed packages."""
    known, absolute = _installed_folders(), dict.fromkeys(os.path.abspath(entry) for entry in sys.path)
    return [entry for entry in absolute if entry not in known and os.path.exists(entry)]


def project_files(modules: Iterable[str]) -> dict[str, Path]:
    """Return the project's files that these modules need, by their path in the archive.

    Raises `RuntimeConfigError` if one of them is a compiled extension, which may not work on another machine.
    """
    collector = _Collector()
    for name in modules:
        collector.add(name)
    files = collector.files
    for path, file in files.items():
        if path.endswith(_COMPILED):
            raise RuntimeConfigError(
                f"{file} is a compiled extension, which cannot be sent to Spark's executors: install it as a package "
                "there and for the Python that runs perago, or set PERAGO_SPARK_MASTER to a local master"
            )
    return _without_large_data(files)


def folder_files(folder: Path) -> dict[str, Path]:
    """Return the files in a folder by their path in the archive, without hidden files and bytecode."""
    return {file.relative_to(folder).as_posix(): file for file in _walk(folder)}


def write_archive(files: Mapping[str, Path], folder: Path) -> Path:
    """Write the files to a zip archive in `folder`, named after a digest of its content. Returns the archive."""
    content = {path: file.read_bytes() for path, file in sorted(files.items())}
    digest = sha256()
    for path, data in content.items():
        digest.update(b"%d %s %d\n" % (len(path), path.encode("utf-8", "surrogateescape"), len(data)))
        digest.update(data)
    archive = folder / f"perago-code-{digest.hexdigest()[:16]}.zip"
    if not archive.exists():
        unfinished = archive.with_suffix(f".{os.getpid()}.part")
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as opened:
            for path, data in content.items():
                entry = zipfile.ZipInfo(path)
                entry.external_attr = (
                    _READABLE  # Hadoop restores it, and the default would let nobody read the file
                )
                opened.writestr(entry, data)
        unfinished.rename(archive)
    return archive


def _installed_folders() -> set[str]:
    """Return the folders of Python's own modules and of installed packages."""
    paths = sysconfig.get_paths()
    known = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return known | {*site.getsitepackages(), site.getusersitepackages(), f"{paths['stdlib']}/lib-dynload"}


class _Collector:
    """Follows imports from module to module, and collects the files of the project's own ones."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self._own = {entry for entry in own_folders() if os.path.isdir(entry)}  # a zip comes from --py-files
        self._seen: set[str] = set()
        self._left: deque[str] = deque()

    def add(self, name: str) -> None:
        """Collect a module, and everything that it imports."""
        self._left.append(name)
        while self._left:
            dotted = self._left.popleft()
            if dotted not in self._seen:
                self._seen.add(dotted)
                self._collect(dotted)

    def _collect(self, dotted: str) -> None:
        for one in loaded_files():
            if one.name == dotted:
                self._add_file(f"{dotted}.py", one.file, package="")
                return
        top, *rest = dotted.split(".")
        spec = None if top in _ON_EXECUTORS or top in sys.builtin_module_names else _find(top)
        if spec is None or not self._is_own(spec):
            return
        parts = [top]
        # A namespace package has no code of its own: only the modules in it that are imported belong to the task.
        while spec is not None and spec.origin is None and rest:
            parts.append(rest.pop(0))
            # By its last name: a dotted one would need its parents imported.
            spec = PathFinder.find_spec(parts[-1], list(spec.submodule_search_locations or ()))
        if spec is None or spec.origin is None:
            return
        where, file = "/".join(parts), Path(spec.origin)
        if spec.submodule_search_locations is None:
            self._add_file(where + file.suffix, file, package=".".join(parts[:-1]))
            return
        for inner in _walk(file.parent):
            relative = inner.relative_to(file.parent)
            self._add_file(
                f"{where}/{relative.as_posix()}", inner, package=".".join([*parts, *relative.parts[:-1]])
            )

    def _is_own(self, spec: ModuleSpec) -> bool:
        """Return whether a top-level module is directly in one of the project's folders."""
        if spec.submodule_search_locations is not None:
            places = [os.path.dirname(os.path.abspath(folder)) for folder in spec.submodule_search_locations]
        else:
            places = (
                [os.path.dirname(os.path.abspath(spec.origin))] if spec.has_location and spec.origin else []
            )
        return any(place in self._own or _is_editable(place) for place in places) and not any(
            _holds_installed(place) for place in places
        )

    def _add_file(self, where: str, file: Path, *, package: str) -> None:
        if where in self.files:
            return
        self.files[where] = file
        if file.suffix == ".py":
            with contextlib.suppress(OSError):
                state = file.stat()
                self._left.extend(imports_of_file(str(file), package, state.st_mtime_ns, state.st_size))


def _find(top: str) -> ModuleSpec | None:
    """Return the spec of a top-level module: of the loaded one, or of the one that an import would find."""
    loaded = sys.modules.get(top)
    spec = getattr(loaded, "__spec__", None) if loaded is not None else None
    with contextlib.suppress(ImportError, ValueError):
        return spec or importlib.util.find_spec(top)
    return None


def _is_editable(place: str) -> bool:
    """Return whether a module in this folder was found past `sys.path`, as those of editable installs are."""
    if not os.path.isdir(place) or place in map(os.path.abspath, sys.path):
        return False
    return not any(place == one or place.startswith(f"{one}{os.sep}") for one in _installed_folders())


@lru_cache(maxsize=256)
def _holds_installed(folder: str) -> bool:
    """Return whether packages were installed into a folder, as by `pip install --target`."""
    return any(Path(folder).glob("*.dist-info"))


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, in order, without hidden files and bytecode. Folders that are links are left out."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            file = Path(where) / name
            # A name that is no text cannot be a name in the archive.
            if (
                not name.startswith(".")
                and str(file).isprintable()
                and file.suffix not in _NEVER_SENT
                and file.is_file()
            ):
                yield file


def _without_large_data(files: dict[str, Path]) -> dict[str, Path]:
    """Return the files without the largest data files, if all data together is above the limit."""
    data = sorted((file.stat().st_size, path) for path, file in files.items() if file.suffix != ".py")
    total, dropped = 0, []
    for size, path in data:
        total += size
        if total > MOST_DATA_BYTES:
            dropped.append(path)
    if dropped:
        log.warning(
            "%d data files of the project are not sent to Spark's executors (%s is the largest): together they hold "
            "more than %d MiB, so keep such data in the workspace",
            *(len(dropped), dropped[-1], MOST_DATA_BYTES // 1024**2),
        )
    return {path: file for path, file in files.items() if path not in dropped}
