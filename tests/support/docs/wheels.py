"""Perago as its users have it: built as a wheel and installed without the checkout on any path.

Nothing is downloaded.  A reader of the docs gets a copy of the checkout, Python and the dependencies, and builds the wheel
with pip; `build_wheel` and `install` do both for tests that need only the installed wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path

from tests.support.docs.pages import ROOT, reader

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src")
OURS = ("perago", "__editable__", "pip")


@dataclass(frozen=True, slots=True)
class Reader:
    """The folder and environment of a reader who uses the checkout only to build the wheel."""

    checkout: Path
    environment: dict[str, str]


def prepare_reader(folder: Path) -> Reader:
    """Prepare a checkout, the one program `python3`, and the dependencies without perago."""
    return Reader(copy_of_checkout(folder / "checkout"), _environment(folder))


def copy_of_checkout(folder: Path) -> Path:
    """Copy the checkout: a build leaves files behind, and several tests may build at once."""
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
    # The interpreter itself and not the test run's venv, which contains perago.
    (programs / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    for entry in Path(get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS):
            (packages / entry.name).symlink_to(entry)
    environment = reader(programs)
    venv = str(Path(sys.prefix) / "bin")
    path = [part for part in environment["PATH"].split(os.pathsep) if part != venv]
    # For pip, "false" is how this variable asks for builds without isolation.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # Share the test run's archive of Spark's classes: creating another takes longer than a test.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    places = {"PATH": os.pathsep.join(path), "PYTHONPATH": str(packages), "HOME": str(home)}
    return environment | offline | places | {"XDG_CACHE_HOME": cache}


# --- the wheel in a new environment ------------------------------------------------------------------------------------


SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
WAIT_SECONDS = 900
"""Only a command that hangs takes this long."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A new environment with the wheel."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        [found] = (self.folder / "lib").glob("python3*/site-packages")
        return found

    def run(self, *command: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command as in the activated environment; no server is configured."""
        hidden = ("CONDUCTOR_", "LAKECTL_", "PERAGO_", "PYTEST_", "MAKE", "MFLAGS", "PYTHON")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        path = f"{self.folder / 'bin'}{os.pathsep}{inherited['PATH']}"
        return subprocess.run(
            command,
            cwd=folder,
            env={**inherited, "PATH": path, "VIRTUAL_ENV": str(self.folder), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )

    def lend(self, packages: Path) -> None:
        """Make a folder importable; `.pth` files in it, such as that of the checkout, are ignored."""
        (self.site_packages / "lent.pth").write_text(f"{packages}\n")


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of its sources: a build leaves files beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    source = copy_of_checkout(folder / "source")
    _pip("wheel", str(source), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"))
    [wheel] = (folder / "dist").glob("perago-*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Environment:
    """Create an environment with the wheel and the dependencies of this one."""
    venv.EnvBuilder(symlinks=True).create(folder)
    made = Environment(folder)
    made.lend(SITE_PACKAGES)
    _pip("--python", str(made.python), "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    return made


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
