"""Where Perago keeps what a Spark session would otherwise work out anew at each start: the user's cache folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder, which need not be there; None for a user without a home."""
    try:
        said = Path(environ.get("XDG_CACHE_HOME", ""))
        # One that is not absolute counts for nothing, as that standard has it: it would be elsewhere for who makes it.
        cache = said if said.is_absolute() else Path.home() / ".cache"
    except (ValueError, RuntimeError):
        # RuntimeError: a user without a home, as in containers that run under any number.
        return None
    return cache / "perago" / "spark"
