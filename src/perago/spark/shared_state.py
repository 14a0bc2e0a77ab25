"""State that all sessions in one JVM share, and that is restored when an attempt ends.

    Spark's catalog            new databases, tables and functions are dropped
    global temporary views     dropped
    caches                     cached tables and RDDs are dropped
    streaming queries          stopped
    Hadoop's configuration     restored; open file systems are closed if their settings (`fs.…`) changed
    added files, archives, .py files       removed
    checkpoint folder, log level, environment of Python workers        restored

SQL settings, the current database, temporary views and registered functions belong to a session, and each attempt has
its own session.  A catalog that outlives the JVM, such as Hive's, belongs to the operator and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_LEVEL = "WARN"

_DEFAULT = "default"
"""Spark's name for the initial database, and for the group of added files that belong to no particular session."""


class SharedState:
    """Saves the state that all sessions in a JVM share, so that it can be restored later."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        context: Any = session.sparkContext
        self._session, self._jvm, self._context = session, jvm, context
        self._jvm_session: Any = session._jsparkSession
        self._scala: Any = context._jsc.sc()
        self._hadoop: Any = context._jsc.hadoopConfiguration()
        self._hadoop_before = jvm.org.apache.hadoop.conf.Configuration(self._hadoop)
        self._settings_before = self._hadoop.getPropsWithPrefix("")
        self._catalog_before = dict(self._catalog())
        self._files_before = {name: set(map(str, files.keySet())) for name, files in self._added_file_maps()}
        self._python_files = list(context._python_includes)
        self._environment = dict(context.environment)
        self._checkpoints = self._scala.checkpointDir()

    def new_in_catalog(self, base: str) -> list[str]:
        """Return the new databases and tables that are not published.

        `base` is the URI of the workspace: tables whose files are below it are published like any other file.
        """
        catalog, now = self._external_catalog, dict(self._catalog())
        new = [
            (database, table)
            for database, (tables, _) in now.items()
            for table in sorted(tables - self._catalog_before.get(database, (set(), set()))[0])
        ]
        return [f"database {name}" for name in sorted(now.keys() - self._catalog_before.keys())] + [
            _named(database, table, where)
            for database, table in new
            if (where := _place_outside(catalog.getTable(database, table), base)) is not None
        ]

    def running_queries(self) -> list[str]:
        """Return the names of the running streaming queries."""
        return [str(query.name() or query.id()) for query in self._queries()]

    def restore(self) -> None:
        """Restore the state that was saved when this object was created."""
        for query in self._queries():
            query.stop()
        self._session.catalog.clearCache()
        for rdd in self._java(self._scala.getPersistentRDDs()).values():
            rdd.unpersist(False)
        self._jvm_session.sharedState().globalTempViewManager().clear()
        self._restore_catalog()
        self._restore_hadoop()
        self._restore_files()
        self._context.environment.clear()
        self._context.environment.update(self._environment)
        getattr(self._scala, "checkpointDir_$eq")(self._checkpoints)
        self._context.setLogLevel(LOG_LEVEL)

    def _queries(self) -> list[Any]:
        return list(self._jvm_session.sharedState().activeStreamingQueries().values())

    @property
    def _external_catalog(self) -> Any:
        return self._jvm_session.sharedState().externalCatalog()

    def _catalog(self) -> Iterator[tuple[str, tuple[set[str], set[str]]]]:
        """Yield each database with its tables and functions. Yields nothing unless the catalog is in memory."""
        if self._session.conf.get("spark.sql.catalogImplementation") != "in-memory":
            return
        catalog = self._external_catalog
        for database in self._names(catalog.listDatabases()):
            functions = self._names(catalog.listFunctions(database, "*"))
            yield database, (set(self._names(catalog.listTables(database))), set(functions))

    def _restore_catalog(self) -> None:
        catalog = self._external_catalog
        for database, (tables, functions) in list(self._catalog()):
            if database not in self._catalog_before:
                catalog.dropDatabase(database, True, True)
                continue
            tables_before, functions_before = self._catalog_before[database]
            for table in tables - tables_before:
                catalog.dropTable(database, table, True, True)
            for function in functions - functions_before:
                catalog.dropFunction(database, function)

    def _restore_hadoop(self) -> None:
        now = self._hadoop.getPropsWithPrefix("")
        if now.equals(self._settings_before):
            return
        changed = self._jvm.java.util.HashSet(now.entrySet())
        changed.removeAll(self._settings_before.entrySet())
        lost = self._jvm.java.util.HashSet(self._settings_before.keySet())
        lost.removeAll(now.keySet())
        names = [str(entry.getKey()) for entry in changed] + [str(name) for name in lost]
        for name in names:
            before = self._hadoop_before.getRaw(name)
            if before is None:
                self._hadoop.unset(name)
            else:
                self._hadoop.set(name, before)
        if any(name.startswith("fs.") for name in names):
            # Hadoop caches file systems, which keep the settings they were opened with.
            self._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
            write_no_checksum_files(self._session)

    def _restore_files(self) -> None:
        from pyspark import SparkFiles

        folder = Path(SparkFiles.getRootDirectory())
        for name, files in self._added_file_maps():
            for uri in [str(uri) for uri in files.keySet()]:
                if uri not in self._files_before.get(name, set()):
                    files.remove(uri)
                    # Spark rejects another file with the same name while this one exists.
                    _remove(folder / uri.partition("#")[0].rpartition("/")[2])
        self._context._python_includes[:] = self._python_files

    def _added_file_maps(self) -> Iterator[tuple[str, Any]]:
        """Yield Spark's own maps of added files and archives, keyed by URI. Changes to them take effect in Spark."""
        for name in ("addedFiles", "addedArchives"):
            group = self._java(getattr(self._scala, name)()).get(_DEFAULT)
            if group is not None:
                yield name, self._java(group)

    def _java(self, collection: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(collection)

    def _names(self, names: Any) -> Iterable[str]:
        return [str(name) for name in self._java(names)]


def _named(database: str, table: str, where: str) -> str:
    name = table if database == _DEFAULT else f"{database}.{table}"
    return f"{name} at {where}" if where else name


def _place_outside(table: Any, base: str) -> str | None:
    """Return where a table of the catalog has its files, "" for Spark's own warehouse.

    Returns None for a view, and for a table below `base` or without files of its own, such as one of a database.
    """
    kind = table.tableType().name()
    if kind == "MANAGED":
        return ""
    location = table.storage().locationUri()
    if kind != "EXTERNAL" or location.isEmpty():
        return None
    uri = location.get()
    authority, path = uri.getAuthority() or "", str(uri.getPath())
    decoded = f"{uri.getScheme() or 'file'}://{authority}{path}"
    return None if f"{decoded}/".startswith(f"{base}/") else decoded


def write_no_checksum_files(session: SparkSession) -> None:
    """Stop Hadoop from writing a checksum file next to each file in a local folder: lakes have their own checksums."""
    jvm: Any = session._jvm
    context: Any = session.sparkContext
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)


def _remove(path: Path) -> None:
    from perago.runtime.root.workdirs import remove_tree

    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
