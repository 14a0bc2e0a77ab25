"""The archive of Spark's classes: one per Java and Spark, and never worse than none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perago.settings import load_settings
from perago.spark.appcds import QUICK_COMPILER, archive_file, make_in_background, quick_options, use_options
from perago.spark.config import is_quick, with_jvm_options

OPTIONS = "spark.driver.extraJavaOptions"


def java_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"')
    return folder


def test_each_java_has_its_own_archive_in_the_users_cache(tmp_path: Path) -> None:
    one, other = java_home(tmp_path / "17", "17"), java_home(tmp_path / "21", "21")

    first = archive_file({"JAVA_HOME": str(one), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    second = archive_file({"JAVA_HOME": str(other), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    (one / "release").write_text('JAVA_VERSION="17.0.99"')
    updated = archive_file({"JAVA_HOME": str(one), "XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert first is not None
    assert first.parent == tmp_path / "cache" / "perago" / "spark"
    assert len({first, second, updated}) == 3


def test_without_java_there_is_no_archive(tmp_path: Path) -> None:
    assert archive_file({"PATH": str(tmp_path)}) is None
    assert archive_file({"JAVA_HOME": str(tmp_path)}) is None


def test_a_user_without_a_home_has_no_archive_and_a_session_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    environ = {"JAVA_HOME": str(java_home(tmp_path / "17", "17"))}

    assert archive_file(environ) is None
    assert make_in_background(environ) is False
    assert archive_file({**environ, "XDG_CACHE_HOME": "not/absolute"}) is None


def test_an_archive_that_is_missing_or_cut_off_or_that_the_command_line_would_tear_is_not_used(
    tmp_path: Path,
) -> None:
    there, torn, shorter = (tmp_path / name for name in ("a.jsa", "a b.jsa", "cut.jsa"))
    for archive in (there, torn, shorter):
        archive.write_bytes(b"12")
        archive.with_suffix(".size").write_text("2")
    shorter.write_bytes(b"1")

    assert f"-XX:SharedArchiveFile={there}" in use_options(there)
    assert use_options(torn) == ()
    assert use_options(shorter) == ()
    assert use_options(tmp_path / "missing.jsa") == ()


def test_an_archive_that_is_there_or_failed_lately_is_not_made_again(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(java_home(tmp_path / "17", "17")), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    archive = archive_file(environ)
    assert archive is not None
    archive.parent.mkdir(parents=True)

    archive.touch()
    assert make_in_background(environ) is False
    archive.unlink()
    archive.with_suffix(".failed").touch()
    assert make_in_background(environ) is False


def test_jvm_options_of_the_operator_come_last_and_win(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{OPTIONS} -Xss4m\n")
    environ = {"SPARK_CONF_DIR": str(tmp_path)}

    assert with_jvm_options({}, [QUICK_COMPILER], {})[OPTIONS] == QUICK_COMPILER
    assert with_jvm_options({}, [QUICK_COMPILER], environ)[OPTIONS] == f"{QUICK_COMPILER} -Xss4m"
    said = with_jvm_options({OPTIONS: "-Xss8m"}, [QUICK_COMPILER], environ)
    assert said[OPTIONS] == f"{QUICK_COMPILER} -Xss8m"


def test_a_machine_with_few_cores_collects_on_one_unless_the_operator_has_chosen_a_collector() -> None:
    few, many = quick_options(cores=2), quick_options(cores=3)
    chosen = with_jvm_options({OPTIONS: "-XX:+UseZGC"}, few, {})[OPTIONS]

    assert few == (*many, "-XX:+UseSerialGC")
    assert with_jvm_options({}, few, {})[OPTIONS].endswith("-XX:+UseSerialGC")
    assert chosen == f"{QUICK_COMPILER} -XX:+UseZGC"


@pytest.mark.parametrize(
    ("environ", "quick"),
    [
        ({"PERAGO_SPARK_SESSION": "quick"}, True),
        ({"PERAGO_SPARK_SESSION": "full"}, False),
        ({}, False),
        ({"PERAGO_SPARK_SESSION": "quick", "PERAGO_SPARK_MASTER": "spark://h:7077"}, False),
        ({"PERAGO_SPARK_SESSION": "quick", "PERAGO_SPARK_CONF": "spark.master=yarn"}, False),
    ],
)
def test_sessions_are_quick_on_this_machine_only_and_where_it_is_said(
    environ: dict[str, str], quick: bool
) -> None:
    assert is_quick(load_settings(environ)) is quick


def archived_for(environ: dict[str, str], most_bytes: int | None = None) -> Path:
    """Create the archive for an environment, whole or truncated, and return its path."""
    archive, real = archive_file(environ), archive_file(os.environ)
    assert archive is not None
    assert real is not None
    if not real.is_file():
        subprocess.run([sys.executable, "-m", "perago.spark.appcds"], check=True)
    archive.parent.mkdir(parents=True)
    with real.open("rb") as whole:
        size = archive.write_bytes(whole.read(most_bytes))
    archive.with_suffix(".size").write_text(str(size))
    return archive


def count_to_seven(environ: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Have a Spark session of a new process count."""
    code = (
        "import os; from pathlib import Path; from perago.settings import load_settings; "
        "from perago.spark.session import Sessions; "
        f"print(Sessions(load_settings(os.environ, root=Path({str(folder / 'root')!r}))).get().range(7).count())"
    )
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_damaged_archive_is_removed_and_spark_starts_without_it(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PERAGO_SPARK_SESSION": "quick"}
    archive = archived_for(environ, most_bytes=100_000)

    ended = count_to_seven(environ, tmp_path)

    assert (ended.returncode, ended.stdout.split()[-1]) == (0, "7"), ended.stderr
    assert "removing it and starting without" in ended.stderr
    assert not archive.exists()


@pytest.mark.slow
def test_a_jvm_that_something_else_has_killed_costs_no_archive(tmp_path: Path) -> None:
    """A Java that is killed the first time that a session wants it."""
    java = Path(shutil.which("java") or "").resolve()
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    shutil.copy(java.parents[1] / "release", home / "release")
    killed = tmp_path / "killed"
    (home / "bin" / "java").write_text(
        "#!/bin/sh\n"
        'case "$*" in *launcher.Main*) ;; '
        f"*SparkSubmit*pyspark-shell*) mkdir {killed} 2>/dev/null && kill -9 $$;; esac\n"
        f'exec {java} "$@"\n'
    )
    (home / "bin" / "java").chmod(0o755)
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PERAGO_SPARK_SESSION": "quick"}
    environ["JAVA_HOME"] = str(home)
    archive = archived_for(environ)

    ended = count_to_seven(environ, tmp_path)

    assert (ended.returncode, ended.stdout.split()[-1]) == (0, "7"), ended.stderr
    assert killed.is_dir()
    assert "Spark did not start, retrying without" in ended.stderr
    assert archive.is_file()
