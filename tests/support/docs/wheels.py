"""A reader who has only the wheel: a copy of the checkout to build it from, Python, and the dependencies, but no perago.

Nothing is downloaded: pip finds what the test run itself has installed, and builds without an environment of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path

from tests.support.docs.pages import ROOT, reader

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src")
OURS = ("perago", "__editable__", "pip")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where somebody works who has never seen the checkout but to build the wheel."""

    checkout: Path
    environment: dict[str, str]


def bench(folder: Path) -> Bench:
    """Lay out a checkout, the one program `python3`, and the dependencies without perago."""
    return Bench(copy_of_checkout(folder / "checkout"), _environment(folder))


def copy_of_checkout(folder: Path) -> Path:
    """A copy: a build leaves files behind, and several tests may build at once."""
    folder.mkdir()
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, folder / name)
    return folder


def _environment(folder: Path) -> dict[str, str]:
    programs, packages, home = folder / "bin", folder / "packages", folder / "home"
    for made in (programs, packages, home):
        made.mkdir()
    # The interpreter itself and not the test run's venv, which has a perago.
    (programs / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    for entry in Path(get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS):
            (packages / entry.name).symlink_to(entry)
    environment = reader(programs)
    venv = str(Path(sys.prefix) / "bin")
    path = [part for part in environment["PATH"].split(os.pathsep) if part != venv]
    # For pip, "false" is how this variable asks for builds without isolation.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # The archive of Spark's classes may be the test run's own: making another takes longer than all of a test.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    places = {"PATH": os.pathsep.join(path), "PYTHONPATH": str(packages), "HOME": str(home)}
    return environment | offline | places | {"XDG_CACHE_HOME": cache}
