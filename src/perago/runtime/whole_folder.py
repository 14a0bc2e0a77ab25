"""Creates a folder on disk with all of its files or not at all, and never over existing files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `folder`, and rename it to `folder` at the end.

    If the block raises, nothing is left.  Raises `OSError` if `folder` has files by then.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        # mkdtemp creates a private folder; give it the mode of an ordinary new folder.
        temporary.chmod(0o777 & ~_umask())
        # rename() replaces an empty folder and fails for any other, even if files were added just now.
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
