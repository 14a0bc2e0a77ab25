"""The browser that looks at Perago's pages, in tests and benches."""

from __future__ import annotations

import os
import shutil


def chromium() -> str | None:
    """The one that is named, else Debian's: its headless shell does the same as the whole of it, in half the CPU."""
    programs = map(shutil.which, ("chromium-headless-shell", "chromium"))
    return os.environ.get("PERAGO_CHROMIUM") or next(filter(None, programs), None)
