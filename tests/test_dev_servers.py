"""`dev/servers` where no server is needed: what it says when nothing is up or a tool is missing, and how it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from realservers import artifacts
from realservers.process import Process

CHECKOUT = Path(__file__).parents[1]


def dev_servers(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with its own cache and state folder."""
    places = {
        "PERAGO_DEV_CACHE": str(home / "cache"),
        "TMPDIR": str(home),
        "PYTHONPATH": str(CHECKOUT / "dev"),
        "PERAGO_DEV_SET": "",
    }
    return subprocess.run(
        [sys.executable, "-m", "realservers", *arguments],
        env={**os.environ, **places, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_status_without_servers_says_down_and_fails(tmp_path: Path) -> None:
    done = dev_servers("status", home=tmp_path)

    assert done.returncode == 1
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["down", "down"]


def test_env_without_servers_prints_nothing_that_a_shell_would_evaluate(tmp_path: Path) -> None:
    done = dev_servers("env", home=tmp_path)

    assert done.returncode == 1
    assert done.stdout == ""
    assert "dev/servers up" in done.stderr


def test_down_without_servers_is_no_error(tmp_path: Path) -> None:
    assert dev_servers("down", home=tmp_path).returncode == 0


@pytest.mark.slow
def test_up_names_every_missing_tool_with_its_version_and_leaves_no_state(tmp_path: Path) -> None:
    # given no tool on the path, and a pip that can fetch nothing
    done = dev_servers("up", home=tmp_path, PATH=str(tmp_path / "empty"), PIP_NO_INDEX="1")

    assert done.returncode == 1
    assert "go is missing: Go 1.26.4 or later is needed" in done.stderr
    assert "mvn is missing: Maven 3.6 or later is needed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("perago-dev-*"))
    assert not list((tmp_path / "cache").glob("*.part"))


@pytest.mark.slow
def test_an_old_go_is_named_as_too_old(tmp_path: Path) -> None:
    old = tmp_path / "bin" / "go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)

    done = dev_servers("up", home=tmp_path, PATH=str(old.parent), PIP_NO_INDEX="1")

    assert "go is too old: Go 1.26.4 or later is needed" in done.stderr


def test_a_state_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    # given another user's link under the name that we would use
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / _state_name(tmp_path)).symlink_to(tmp_path / "elsewhere")

    done = dev_servers("down", home=tmp_path)

    assert done.returncode == 1
    assert "is not a folder of this user" in done.stderr
    assert (tmp_path / "elsewhere").is_dir()


@pytest.fixture
def two_sets(tmp_path: Path) -> tuple[Path, Path]:
    """The state folders of the usual set of servers and of a named one."""
    usual, named = (tmp_path / _state_name(tmp_path, name) for name in ("", "mine"))
    usual.mkdir()
    named.mkdir()
    return usual, named


def test_down_of_a_named_set_leaves_the_others_alone(tmp_path: Path, two_sets: tuple[Path, Path]) -> None:
    done = dev_servers("--set", "mine", "down", home=tmp_path)

    assert done.returncode == 0
    assert [folder.exists() for folder in two_sets] == [True, False]


def test_down_stops_the_named_sets_of_the_checkout_too(tmp_path: Path, two_sets: tuple[Path, Path]) -> None:
    done = dev_servers("down", home=tmp_path)

    assert done.returncode == 0
    assert [folder.exists() for folder in two_sets] == [False, False]


def test_a_name_that_would_leave_the_folder_of_the_sets_is_refused(tmp_path: Path) -> None:
    done = dev_servers("--set", "../mine", "down", home=tmp_path)

    assert done.returncode == 1
    assert "'../mine' is no name for a set of servers" in done.stderr


def _state_name(home: Path, set_name: str = "") -> str:
    script = "from realservers.state import state_folder; print(state_folder().name)"
    places = {"TMPDIR": str(home), "PYTHONPATH": str(CHECKOUT / "dev"), "PERAGO_DEV_SET": set_name}
    environment = {**os.environ, **places}
    return subprocess.check_output([sys.executable, "-c", script], env=environment, text=True).strip()


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    """A process that sleeps; its command line names its folder, as the servers' do."""
    process = Process("sleeper", tmp_path)
    process.start(["/bin/sh", "-c", "while :; do sleep 1; done", str(tmp_path)])
    _until(lambda: process.pid() is not None)
    yield process
    process.stop()


def test_a_stopped_process_is_gone_and_so_is_its_pid_file(sleeper: Process) -> None:
    pid = sleeper.pid()
    assert pid is not None

    sleeper.stop()

    assert not sleeper.pid_file.exists()
    sleeper.pid_file.write_text(str(pid))
    assert sleeper.pid() is None


def test_a_paused_process_is_stopped_too(sleeper: Process) -> None:
    pid = sleeper.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    sleeper.stop()

    sleeper.pid_file.write_text(str(pid))
    assert sleeper.pid() is None


def test_a_pid_that_belongs_to_somebody_else_is_left_alone(tmp_path: Path) -> None:
    # given a pid file that outlived its process, whose pid is now ours
    process = Process("sleeper", tmp_path / "state")
    process.folder.mkdir()
    process.pid_file.write_text(str(os.getpid()))

    process.stop()

    assert process.pid() is None
    assert not process.pid_file.exists()


def test_a_build_that_fails_leaves_nothing_under_the_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_DEV_CACHE", str(tmp_path))

    def half(part: Path) -> None:
        (part / "half").write_text("not all of it")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        artifacts.once("thing", half)

    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_a_thing_is_made_once_and_what_a_killed_run_left_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_DEV_CACHE", str(tmp_path))
    (tmp_path / "thing.part").mkdir()
    (tmp_path / "thing.part" / "left over").touch()
    made: list[Path] = []

    def whole(part: Path) -> None:
        made.append(part)
        (part / "whole").touch()

    first, second = artifacts.once("thing", whole), artifacts.once("thing", whole)

    assert first == second == tmp_path / "thing"
    assert [path.name for path in first.iterdir()] == ["whole"]
    assert len(made) == 1


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in 60 s"
        time.sleep(0.02)
