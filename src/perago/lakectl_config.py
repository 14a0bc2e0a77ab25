"""Reads lakectl's configuration file, to fill in LAKECTL_* variables that are not set.

The file only fills gaps in the settings for reaching lakeFS.  It never makes a command use lakeFS: the caller has
already decided that (see `load_settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perago.errors import RuntimeConfigError

FILE_SETTING = "LAKECTL_CONFIG_FILE"
DEFAULT_FILE = ".lakectl.yaml"
"""The name of lakectl's configuration file in the home folder."""

_KEYS = {
    "LAKECTL_SERVER_ENDPOINT_URL": ("server", "endpoint_url"),
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": ("credentials", "access_key_id"),
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": ("credentials", "secret_access_key"),
}


def read_lakectl_file(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values in lakectl's file, keyed by variable name. As in lakectl, a missing file counts as empty."""
    file = _file_of(environ)
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise RuntimeConfigError(
            f"cannot read lakectl's configuration {file} ({reason}): name the file with {FILE_SETTING}, or set the "
            "LAKECTL_* variables"
        ) from error
    sections = _sections(text, file)
    found = {name: sections.get(section, {}).get(key, "") for name, (section, key) in _KEYS.items()}
    return {name: value.strip() for name, value in found.items() if isinstance(value, str) and value.strip()}


def _file_of(environ: Mapping[str, str]) -> Path | None:
    named, home = environ.get(FILE_SETTING, "").strip(), environ.get("HOME", "").strip()
    if named:
        return Path(named).expanduser()
    return Path(home) / DEFAULT_FILE if home else None


def _sections(text: str, file: Path) -> dict[str, dict[str, Any]]:
    # Imported here, so that only commands that use lakeFS pay for the import.
    import yaml

    try:
        # BaseLoader keeps every scalar a string: an access key of digits must not become a number.
        found = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        # Do not include the error's own text: it quotes the file, which contains a secret.
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise RuntimeConfigError(
            f"lakectl's configuration {file} is not YAML{line}: fix it, or run `lakectl config`"
        ) from None
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, dict)}
