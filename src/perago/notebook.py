"""Reads tables and files at one commit, in a notebook or script.

Importing `perago` imports this module, so everything that it needs is imported when a workspace is opened.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from perago.errors import LakeNotFound, RuntimeConfigError, install_extra

if TYPE_CHECKING:
    from perago.lake.base import Lake
    from perago.runtime.table_files import TableFiles


def read(workspace: str, *, root: str | Path | None = None, remote: bool | None = None) -> ReadWorkspace:
    """Open a repository at the commit that REPO[@REF] names now, to read it. REF is a branch, tag or commit (`main`).

    With `remote=True` it is in lakeFS, with `remote=False` in the embedded lake below `root`; otherwise PERAGO_SERVERS
    and PERAGO_ROOT decide, as for commands. Use it as a context manager, or call `close`.
    """
    from perago.backend import Embedded, Real, has_local_lake
    from perago.runtime.lake_lookup import suggesting_existing_names
    from perago.settings import load_settings

    repository, at, ref = workspace.partition("@")
    if not repository or (at and not ref):
        raise RuntimeConfigError(f"{workspace!r} is not REPO[@REF], such as songs@main")
    settings = load_settings(os.environ, root=Path(root) if root is not None else None, remote=remote)
    real = settings.servers == "remote"
    if not real and not has_local_lake(settings):
        raise RuntimeConfigError(
            f"there is no lake below {settings.root}: name its root with root=, or read lakeFS with remote=True"
        )
    lake = (Real(settings) if real else Embedded(settings)).open_lake()
    try:
        with suggesting_existing_names(lake, repository, ref or "main"):
            commit = lake.commit_at(repository, ref or "main").id
    except BaseException:
        lake.close()
        raise
    return ReadWorkspace(lake, repository, commit)


class ReadWorkspace:
    """A repository at one commit, as `read` opens it. Nothing in it can be changed.

    What is read is downloaded to a temporary folder, verified, and removed when the workspace is closed.
    """

    def __init__(self, lake: Lake, repository: str, ref: str) -> None:
        self._lake = lake
        self._temporary = TemporaryDirectory(prefix="perago-read-")
        self._paths: dict[str, Path] = {}
        self._closed = False
        self.repository = repository
        """The repository's name."""
        self.ref = ref
        """The full id of the commit. The same commit gives the same data tomorrow."""

    def __enter__(self) -> ReadWorkspace:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ReadWorkspace {self.repository}@{self.ref}>"

    def close(self) -> None:
        """Remove what was downloaded, and close the connections."""
        if not self._closed:
            self._closed = True
            self._temporary.cleanup()
            self._lake.close()

    def files(self, prefix: str = "") -> list[str]:
        """Return the paths of all objects, or of those in a folder."""
        folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        return [entry.path for entry in self._open().list(self.repository, self.ref, folder)]

    def path(self, name: str) -> Path:
        """Download an object or a folder, and return where it is. It is downloaded once."""
        wanted = name.strip("/")
        if wanted not in self._paths:
            target = Path(self._temporary.name) / str(len(self._paths)) / (wanted.rpartition("/")[2] or "all")
            self._download(wanted, target)
            self._paths[wanted] = target
        self._open()
        return self._paths[wanted]

    def read_bytes(self, path: str) -> bytes:
        """Return an object's bytes."""
        return b"".join(self._open().read(self.repository, self.ref, path.strip("/")))

    def arrow(self, path: str) -> Any:
        """Return a table (Parquet, CSV with a header, or JSON lines) as a `pyarrow.Table`.

        Values in folder names (`day=2026-11-19`) are columns.
        """
        _need("pyarrow")
        return _arrow_table(self._table(path), self.path(path), path.strip("/"))

    def pandas(self, path: str) -> Any:
        """Return a table as a `pandas.DataFrame`."""
        _need("pandas")
        return self.arrow(path).to_pandas()

    def spark(self, path: str, spark: Any = None) -> Any:
        """Return a table as a Spark DataFrame, in the given session, the active one, or a new one on this machine.

        The session must see this machine's files. The DataFrame reads them when it is evaluated, so evaluate it before
        the workspace is closed.
        """
        _need("pyspark")
        from perago.spark.local_table import read_local_table

        table = self._table(path)
        return read_local_table(self.path(path), table.files[0].entry.path, spark)

    def _open(self) -> Lake:
        if self._closed:
            raise RuntimeConfigError(
                f"the workspace {self.repository}@{self.ref} is closed: read inside its `with` block"
            )
        return self._lake

    def _table(self, path: str) -> TableFiles:
        """Return a table's files. Raises `RuntimeConfigError` for a Delta table, which needs its own reader."""
        from perago.runtime.delta_log import DELTA_LOG
        from perago.runtime.lake_lookup import describe_missing_object
        from perago.runtime.table_files import list_table

        lake, name = self._open(), path.strip("/")
        log = f"{name}/{DELTA_LOG}/" if name else f"{DELTA_LOG}/"
        if next(iter(lake.list(self.repository, self.ref, log)), None) is not None:
            raise RuntimeConfigError(
                f"{name!r} is a Delta table: its files are at `workspace.path({name!r})`, for a reader that knows Delta"
            )
        found = list_table(lake, (self.repository, self.ref, name), Path(self._temporary.name), lambda _: ())
        if found is None:
            raise LakeNotFound(describe_missing_object(lake, self.repository, self.ref, name))
        return found

    def _download(self, name: str, target: Path) -> None:
        from perago.lake.base import Download
        from perago.protocol.changes import check_projection
        from perago.runtime.folder_download import download_folder

        lake = self._open()
        try:
            entry = lake.stat(self.repository, self.ref, name) if name else None
        except LakeNotFound:
            entry = None
        if entry is None:
            prefix = f"{name}/" if name else ""
            download_folder(
                lake, self.repository, self.ref, prefix, target, show_progress=lambda *_: nullcontext()
            )
            return
        check_projection([target.name])
        target.parent.mkdir(parents=True, exist_ok=True)
        lake.download(self.repository, self.ref, [Download(entry, target)])


def _arrow_table(table: TableFiles, local: Path, path: str) -> Any:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.dataset as ds

    files = [_local_file(one.entry.path, local, path) for one in table.files]
    format_: Any = table.format
    if table.format == "csv" and files[0].removesuffix(".gz").endswith(".tsv"):
        format_ = ds.CsvFileFormat(parse_options=pyarrow.csv.ParseOptions(delimiter="\t"))
    base = str(local) if local.is_dir() else str(local.parent)
    found = ds.dataset(
        files, format=format_, partitioning=ds.partitioning(flavor="hive"), partition_base_dir=base
    )
    # By default the first file decides, and columns that only later files have would be missing.
    schemas = [found.schema, *(one.physical_schema for one in found.get_fragments())]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowInvalid as error:
        raise RuntimeConfigError(f"the files of {path!r} have columns of different types: {error}") from error
    return found.replace_schema(schema).to_table()


def _local_file(object_path: str, local: Path, path: str) -> str:
    return str(local / object_path[len(path) :].lstrip("/")) if local.is_dir() else str(local)


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise RuntimeConfigError(
            f"reading tables needs {package}, which is not installed: run `{install_extra('spark')}`"
        )


__all__: Sequence[str] = ["ReadWorkspace", "read"]
