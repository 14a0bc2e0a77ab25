"""Opens DuckDB, the only module that imports it.  It is an optional extra, imported when rows are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perago.errors import RuntimeConfigError, install_extra


def check_engine() -> None:
    """Raise `RuntimeConfigError` if DuckDB is not installed."""
    load_duckdb()


def load_duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise RuntimeConfigError(
            f"comparing rows needs duckdb, which is not installed: run `{install_extra('diff')}`"
        ) from None
    return duckdb


@contextmanager
def naming_damaged_files(path: str, objects: Mapping[str, str]) -> Iterator[None]:
    """Raise the engine's errors as `RuntimeConfigError`, with the object whose file (a key of `objects`) they name."""
    try:
        yield
    except load_duckdb().Error as error:
        text = str(error)
        named = next((one for file, one in objects.items() if file in text), path)
        first = text.partition("\n")[0]
        for file, one in objects.items():
            first = first.replace(file, one)
        raise RuntimeConfigError(f"cannot compare the rows of {named!r}: {first}") from error
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot compare the rows of {path!r}: {error.strerror or error}; TMPDIR names the folder for temporary files"
        ) from error


@contextmanager
def open_engine(folder: Path) -> Iterator[Any]:
    """Open DuckDB, which may read and write below `folder` only, and downloads nothing."""
    spill = folder / "spill"
    engine = load_duckdb().connect(":memory:", config={"autoinstall_known_extensions": "false"})
    try:
        for setting in (
            f"temp_directory = {quoted_text(str(spill))}",
            f"allowed_directories = [{quoted_text(str(folder))}]",
            "enable_external_access = false",
            "memory_limit = '2GB'",
            "preserve_insertion_order = false",
            "TimeZone = 'UTC'",
        ):
            engine.execute(f"SET {setting}")
        yield engine
    finally:
        engine.close()


def quoted_text(value: str) -> str:
    """Return a text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"


def quoted_name(value: str) -> str:
    """Return the name of a column as SQL has it."""
    return '"' + value.replace('"', '""') + '"'
