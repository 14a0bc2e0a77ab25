"""Perago as its users have it: the built wheel in a new environment, in which nothing of the checkout is on the path.

Nothing is downloaded: the wheel is built by the back end that is installed here, and the environment borrows the
dependencies of the one that runs the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.support.docs.wheels import copy_of_checkout

CHECKOUT = Path(__file__).parents[3]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
WAIT_SECONDS = 900
"""Only a command that hangs takes so long."""


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
        """A command as a user gives it who has activated the environment; no server is configured."""
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
        """Let it import what a folder holds; `.pth` files there, such as that of the checkout, do not count."""
        (self.site_packages / "lent.pth").write_text(f"{packages}\n")


def build_wheel(folder: Path) -> Path:
    """The wheel, built from a copy of what it is made of: a build leaves files beside its sources."""
    folder.mkdir(parents=True, exist_ok=True)
    source = copy_of_checkout(folder / "source")
    _pip("wheel", str(source), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"))
    [wheel] = (folder / "dist").glob("perago-*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Environment:
    """A new environment with the wheel, and with the dependencies of this one."""
    venv.EnvBuilder(symlinks=True).create(folder)
    made = Environment(folder)
    made.lend(SITE_PACKAGES)
    _pip("--python", str(made.python), "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    return made


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        cwd=CHECKOUT.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
