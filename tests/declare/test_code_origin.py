"""Which code a task belongs to: a Git commit, a distribution, or a digest of its sources."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.declare import code_origin
from perago.declare.code_origin import code_of, installed_packages, provenance_of
from perago.declare.run_steps import PUBLISH
from tests.support.worlds.world import make_task

SOURCE = "def body():\n    return 1\n"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget what is known, as a new process does."""
    for known in (code_origin._git_code, code_origin._git_status, installed_packages):
        known.cache_clear()
    code_origin._packages_digest.cache_clear()
    yield
    for known in (code_origin._git_code, code_origin._git_status, installed_packages):
        known.cache_clear()
    code_origin._packages_digest.cache_clear()


def load(file: Path, name: str = "loaded_for_code_origin") -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    body: Callable[..., Any] = module.body
    return body


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Git project with one commit."""
    (tmp_path / "tasks.py").write_text(SOURCE)
    (tmp_path / "more.txt").write_text("more")
    git(tmp_path, "init")
    git(tmp_path, "remote", "add", "origin", "https://user:hush@example.com/songs.git")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_a_clean_project_has_its_commit(project: Path) -> None:
    (project / "not tracked.txt").write_text("data that no commit needs")

    assert code_of(load(project / "tasks.py")) == git(project, "rev-parse", "HEAD")


def test_a_changed_file_makes_the_project_dirty(project: Path) -> None:
    (project / "more.txt").write_text("changed")

    assert code_of(load(project / "tasks.py")) == git(project, "rev-parse", "HEAD") + "+dirty"


def test_code_that_is_in_no_commit_is_dirty(project: Path) -> None:
    (project / "new.py").write_text(SOURCE)

    assert code_of(load(project / "new.py")).endswith("+dirty")


def test_a_loaded_module_that_is_in_no_commit_makes_the_project_dirty(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "helper.py").write_text(SOURCE)
    monkeypatch.setitem(sys.modules, "helper_of_origin", sys)
    load(project / "helper.py", "helper_of_origin")

    assert code_of(load(project / "tasks.py")).endswith("+dirty")


def test_only_the_task_s_own_project_counts_in_a_repository_of_many(project: Path) -> None:
    one = project / "one"
    one.mkdir()
    (one / "pyproject.toml").write_text("")
    (one / "tasks.py").write_text(SOURCE)
    git(project, "add", ".")
    git(project, "commit", "-m", "second")
    (project / "more.txt").write_text("changed")

    assert code_of(load(one / "tasks.py")) == git(project, "rev-parse", "HEAD")


def test_it_stays_what_the_process_has_loaded(project: Path) -> None:
    body = load(project / "tasks.py")
    first = code_of(body)
    (project / "tasks.py").write_text(SOURCE + "# changed\n")
    git(project, "commit", "-a", "-m", "second")

    assert code_of(body) == first


def test_a_repository_of_somebody_else_in_the_environment_does_not_count(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("hook")))

    assert code_of(load(project / "tasks.py")) == git(project, "rev-parse", "HEAD")


@pytest.mark.parametrize("broken", ["no git", "hangs", "no commit", "not a repository"])
def test_without_an_answer_from_git_it_is_the_digest_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    (tmp_path / "tasks.py").write_text(SOURCE)
    if broken == "not a repository":
        (tmp_path / ".git").mkdir()
    else:
        git(tmp_path, "init")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    if broken == "hangs":
        (bin_folder / "git").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
        (bin_folder / "git").chmod(0o755)
        monkeypatch.setattr(code_origin, "GIT_SECONDS", 0.2)
    if broken in ("no git", "hangs"):
        monkeypatch.setenv("PATH", str(bin_folder))

    found = code_of(load(tmp_path / "tasks.py"))

    assert found.startswith("sha256:")
    assert len(found) == len("sha256:") + 12


def test_an_installed_task_has_its_distribution_although_it_is_below_a_git_project(project: Path) -> None:
    packages = project / ".venv" / "lib" / "site-packages"
    (packages / "My_Songs-1.2.dist-info").mkdir(parents=True)
    (packages / "other-1.dist-info").mkdir()
    (packages / "songs").mkdir()
    (packages / "songs" / "tasks.py").write_text(SOURCE)
    (packages / "My_Songs-1.2.dist-info" / "RECORD").write_text("x,,\nsongs/tasks.py,sha256=x,1\n")
    (packages / "other-1.dist-info" / "RECORD").write_text("other/songs/tasks.py,sha256=x,1\n")

    assert code_of(load(packages / "songs" / "tasks.py")) == "my-songs==1.2"

    (packages / "songs" / "copied.py").write_text(SOURCE)
    assert code_of(load(packages / "songs" / "copied.py")).startswith("sha256:")


def test_perago_s_own_steps_have_the_version_of_perago() -> None:
    assert code_of(PUBLISH.fn).startswith("perago==")


def test_what_has_no_code_is_unknown() -> None:
    assert code_of(len) == ""


def test_the_first_distribution_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, info in (
        ("a", "Some_Thing-1.dist-info"),
        ("b", "some.thing-2.dist-info"),
        ("b", "x-3.dist-info"),
    ):
        (tmp_path / folder / info).mkdir(parents=True)
    (tmp_path / "b" / "old.egg-info").mkdir()
    (tmp_path / "b" / "old.egg-info" / "PKG-INFO").write_text(
        "Metadata-Version: 1.0\nName: old\nVersion: 4\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "gone")])

    assert installed_packages() == ("old==4", "some-thing==1", "x==3")


def test_the_versions_say_pyspark_only_for_spark_tasks() -> None:
    found = provenance_of(make_task(), "registry/songs@sha256:1")

    assert found.runtime.startswith("perago ")
    assert ", python 3." in found.runtime
    assert "pyspark" not in found.runtime
    assert "pyspark " in code_origin._runtime(spark=True)
    assert found.image == "registry/songs@sha256:1"
    assert len(found.packages) == 12
