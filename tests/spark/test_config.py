"""The packages of a session: resolved by Ivy with those of the operator, or by the files that Ivy found before."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.spark.config import Packages
from perago.spark.jvm import packages_lock

OURS = Packages(("org.example:reads:1.0", "org.example:writes:2.1"), ("org.example:bundle",))
LOCAL = {"spark.master": "local[2]"}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_CONF_DIR": str(tmp_path)}


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """Return what Ivy found: the packages, and a dependency of one of them."""
    made = [tmp_path / "a b" / f"org.example_{name}.jar" for name in ("reads-1.0", "writes-2.1", "more-7")]
    for file in made:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"jar")
    return made


def started(jars: list[Path], **other: str) -> dict[str, str]:
    """Return the settings of a session that was started with the packages."""
    uris = ",".join(jar.as_uri() for jar in jars)
    return {"spark.jars": uris, "spark.jars.packages": ",".join(OURS.names), **other}


def test_packages_come_after_those_of_the_operator_wherever_they_are_set(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.jars.packages io.delta:delta:4\n")

    in_file = OURS.with_packages(LOCAL, environ)
    said = OURS.with_packages({**LOCAL, "spark.jars.packages": "a:b:1"}, environ)

    ours = "org.example:reads:1.0,org.example:writes:2.1"
    assert in_file["spark.jars.packages"] == f"io.delta:delta:4,{ours}"
    assert said["spark.jars.packages"] == f"a:b:1,{ours}"
    assert said["spark.jars.excludes"] == "org.example:bundle"
    assert Packages().with_packages(LOCAL, environ) == LOCAL


def test_the_files_that_were_found_are_given_to_the_next_session(
    environ: dict[str, str], jars: list[Path]
) -> None:
    assert OURS.with_cached_jars(LOCAL, environ) is None

    OURS.remember_files(LOCAL, environ, started(jars))

    here = OURS.with_cached_jars(LOCAL, environ)
    there = OURS.with_cached_jars({"spark.master": "spark://head:7077"}, environ)
    assert here is not None
    assert there is not None
    # On this machine they are where they are; executors elsewhere get them from the driver.
    assert here == {**LOCAL, "spark.jars": ",".join(f"local:{jar.as_uri()[5:]}" for jar in jars)}
    assert there["spark.jars"] == ",".join(jar.as_uri() for jar in jars)


@pytest.mark.parametrize("damage", ["gone", "cut off", "no list", "half a list", "an empty list", "a list"])
def test_a_list_that_is_no_longer_true_counts_for_nothing(
    environ: dict[str, str], jars: list[Path], tmp_path: Path, damage: str
) -> None:
    OURS.remember_files(LOCAL, environ, started(jars))
    [kept] = (tmp_path / "cache").rglob("*.json")
    if damage == "gone":
        jars[2].unlink()
    elif damage == "cut off":
        jars[2].write_bytes(b"j")
    else:
        text = {
            "no list": "null",
            "half a list": kept.read_text()[:40],
            "an empty list": "{}",
            "a list": "[1]",
        }
        kept.write_text(text[damage])

    assert OURS.with_cached_jars(LOCAL, environ) is None


@pytest.mark.parametrize(
    "other",
    [
        {"spark.jars.packages": "a:b:1"},
        {"spark.jars": "/mine.jar"},
        {"spark.jars.excludes": "a:b"},
        {"spark.jars.repositories": "/srv/packages"},
        {"spark.jars.ivy": "/srv/ivy"},
    ],
)
def test_package_settings_of_the_operator_never_get_a_list_made_without_them(
    environ: dict[str, str], jars: list[Path], tmp_path: Path, other: dict[str, str]
) -> None:
    OURS.remember_files(LOCAL, environ, started(jars))

    assert OURS.with_cached_jars({**LOCAL, **other}, environ) is None
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in other.items()))
    assert OURS.with_cached_jars(LOCAL, environ) is None


def test_a_session_that_was_started_with_something_else_leaves_no_list(
    environ: dict[str, str], jars: list[Path], tmp_path: Path
) -> None:
    OURS.remember_files(LOCAL, environ, {"spark.jars": "/mine.jar"})
    OURS.remember_files(LOCAL, environ, started(jars, **{"spark.jars.packages": "a:b:1"}))
    OURS.remember_files(LOCAL, environ, started(jars[1:]))
    OURS.remember_files(LOCAL, environ, started([*jars, tmp_path / "missing.jar"]))
    OURS.remember_files(LOCAL, environ, started(jars, **{"spark.jars": "spark://elsewhere/reads-1.0.jar"}))
    Packages().remember_files(LOCAL, environ, started(jars))

    assert list(tmp_path.rglob("*.json")) == []


def test_a_folder_that_cannot_be_written_is_no_error(
    environ: dict[str, str], jars: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("not a folder")

    OURS.remember_files(LOCAL, environ, started(jars))

    assert OURS.with_cached_jars(LOCAL, environ) is None


def test_the_list_tells_sizes_by_address(environ: dict[str, str], jars: list[Path], tmp_path: Path) -> None:
    OURS.remember_files(LOCAL, environ, started(jars))

    [kept] = (tmp_path / "cache" / "perago" / "spark").iterdir()
    assert json.loads(kept.read_text()) == {jar.as_uri(): 3 for jar in jars}


def test_one_process_fetches_packages_and_those_that_need_what_it_fetched_start_together(
    environ: dict[str, str],
) -> None:
    asked = {"spark.jars.packages": "a:b:1"}
    first, second, third = (threading.Event() for _ in range(3))

    def start(entered: threading.Event, conf: dict[str, str]) -> None:
        with packages_lock(conf, environ):
            entered.set()

    with packages_lock(asked, environ):
        same = threading.Thread(target=start, args=[first, asked])
        other = threading.Thread(target=start, args=[second, {"spark.jars.packages": "c:d:1"}])
        same.start()
        other.start()
        start(third, {})  # a session without packages never waits
        assert not first.wait(0.2)
        assert not second.is_set()
    same.join()
    other.join()
    assert first.is_set()
    assert second.is_set()

    with packages_lock(asked, environ), packages_lock(asked, environ):
        pass


def test_packages_whose_start_failed_are_fetched_by_one_process_again(environ: dict[str, str]) -> None:
    asked = {"spark.jars.packages": "a:b:1"}
    entered = threading.Event()

    def start() -> None:
        with packages_lock(asked, environ):
            entered.set()

    with pytest.raises(RuntimeConfigError), packages_lock(asked, environ):
        raise RuntimeConfigError("no Spark")
    with packages_lock(asked, environ):
        waiting = threading.Thread(target=start)
        waiting.start()
        assert not entered.wait(0.2)
    waiting.join()


def test_packages_are_fetched_without_a_lock_where_the_cache_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with packages_lock({"spark.jars.packages": "a:b:1"}, {"XDG_CACHE_HOME": str(tmp_path / "file")}):
        pass
