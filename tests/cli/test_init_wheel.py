"""`perago init` from the built wheel: its project is tested and run as a user would, away from the checkout."""

from __future__ import annotations

import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.docs.wheels import ROOT, SITE_PACKAGES, Environment, build_wheel, install

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(wheel, tmp_path_factory.mktemp("environment") / "venv")


def test_the_wheel_holds_every_template(wheel: Path) -> None:
    templates = {path.name for path in (ROOT / "src/perago/runtime/templates").iterdir()}
    with zipfile.ZipFile(wheel) as archive:
        shipped = {Path(name).name for name in archive.namelist() if "/runtime/templates/" in name}

    assert shipped == templates
    assert len(shipped) > 10


@pytest.mark.parametrize("option", [(), ("--no-spark",)], ids=["with Spark", "without Spark"])
def test_a_new_project_is_tested_and_run(
    option: tuple[str, ...], installed: Environment, tmp_path: Path
) -> None:
    where = installed.run("python", "-c", "import perago; print(perago.__file__)", folder=tmp_path).stdout
    assert where.startswith(str(installed.folder)), "the wheel is what runs here"

    made = installed.run("perago", "init", "Weather_2", *option, folder=tmp_path)
    assert made.returncode == 0, made.stdout
    assert made.stdout.endswith("  cd Weather_2\n  make test\n  make run\n")
    project = tmp_path / "Weather_2"

    tested = installed.run("make", "test", folder=project)
    assert tested.returncode == 0, tested.stdout
    assert "5 passed" in tested.stdout

    ran = installed.run("make", "run", folder=project)
    assert ran.returncode == 0, ran.stdout
    assert "workflow weather_2: COMPLETED" in ran.stdout
    assert '"warmest": "harbour"' in ran.stdout
    history = installed.run("perago", "history", "weather-2", folder=project).stdout
    assert ("weather_2_clean" in history, "weather_2_summarize" in history) == (True, True)


class TestMissingRequirements:
    """The Makefile where something is not installed: it says so in a line, or installs it."""

    @pytest.fixture
    def project(self, installed: Environment, tmp_path: Path) -> Path:
        made = installed.run("perago", "init", "weather", "--no-spark", folder=tmp_path)
        assert made.returncode == 0, made.stdout
        return tmp_path / "weather"

    def test_a_python_without_perago_is_named(self, installed: Environment, project: Path) -> None:
        bare = Environment(project.parent / "bare")
        venv.EnvBuilder(symlinks=True).create(bare.folder)

        done = installed.run("make", "test", f"PYTHON={bare.python}", folder=project)

        assert done.returncode != 0
        assert f"perago is not installed for {bare.python}" in done.stdout
        assert "make PYTHON=/path/to/its/bin/python test" in done.stdout

    def test_pytest_is_installed_where_it_is_missing(
        self, wheel: Path, project: Path, tmp_path: Path
    ) -> None:
        lent = tmp_path / "lent"
        lent.mkdir()
        for package in SITE_PACKAGES.iterdir():
            if not package.name.startswith(("pytest", "_pytest")):
                (lent / package.name).symlink_to(package)
        without = install(wheel, tmp_path / "without-pytest")
        without.lend(lent)

        # Nothing can be downloaded in a test, so the try to install it is seen by its failure.
        done = without.run("make", "test", folder=project, PIP_NO_INDEX="1")

        assert done.returncode != 0
        assert "installing what requirements.txt names" in done.stdout
        assert "No matching distribution found for pytest" in done.stdout
        assert "python3 -m pip install -r requirements.txt" in done.stdout
