"""Starts, stops and inspects real lakeFS and Conductor servers for development and tests."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from realservers import state as states
from realservers import store
from realservers.artifacts import conductor_archive, lakefs_folder, postgres_folder, versitygw_command
from realservers.fleet import (
    BACKING,
    SERVERS,
    WANTED,
    address,
    forget,
    help_along,
    names,
    process,
    reported_version,
    start,
)
from realservers.state import State
from realservers.tools import DevError, java_command, locked, say


def up(*, production: bool = False) -> int:
    """Fetch what is missing, start the servers that do not answer, and wait until all of them do."""
    with locked(f"state-{states.set_mark()}"):
        state = states.load()
        if production and state is not None and not state.production:
            raise DevError(
                "this set is up without --production: run `dev/servers down` first, or choose another --set"
            )
        production = production or (state is not None and state.production)
        down_now = [] if state is None else [name for name in names(state) if not _answers(name, state)]
        if state is not None and not down_now:
            say("all servers are up")
            return 0
        _get_everything(production=production)
        if state is None:
            state = states.create(production=production)
            down_now = list(names(state))
        for together in (BACKING, SERVERS):
            _start_all([name for name in down_now if name in together], state)
    # They have answered before, so it is not a failure if one misses this check because the machine is busy.
    status()
    return 0


def down() -> int:
    """Stop all servers and remove their state, whatever their condition; without --set, include all named sets."""
    named = [] if states.set_name() else states.named_sets()
    for name in [*named, states.set_name()]:
        os.environ["PERAGO_DEV_SET"] = name
        with locked(f"state-{states.set_mark()}"):
            # Servers that depend on others stop first: if those were already gone, they would take longer to stop.
            for together in (SERVERS, BACKING):
                with ThreadPoolExecutor() as pool:
                    list(pool.map(lambda server: process(server).stop(), together))
            states.remove()
    say("no server, no state")
    return 0


def restart(name: str, *, fresh: bool = False) -> int:
    """Stop one server, if it is running, and start it again with the same port and state."""
    with locked(f"state-{states.set_mark()}"):
        state = _known()
        if name not in names(state):
            raise DevError(f"this set has no {name}: it is not one of `dev/servers up --production`")
        if fresh and name in BACKING:
            raise DevError(
                f"{name} keeps what other servers know: run `dev/servers down`, then `up --production`"
            )
        process(name).stop()
        if fresh:
            forget(name, state)
        _start_all([name], state)
    status()
    return 0


def status() -> int:
    """Print one line per server, and exit with 0 if all are up."""
    state = states.load()
    all_up = True
    lines = []
    for name in names(state):
        version = reported_version(name, state) if state else None
        pid = process(name).pid() if state else None
        all_up = all_up and version is not None and pid is not None
        where = address(name, state) if state else "-"
        condition = "up" if version else "not answering" if pid else "down"
        lines.append(f"{name:<10} {version or '-':<8} {where:<24} pid {pid or '-':<8} {condition}")
    print("\n".join(lines))
    return 0 if all_up else 1


def env() -> int:
    """Print the environment to use, as lines for a shell to evaluate."""
    state = _known()
    dead = [name for name in names(state) if process(name).pid() is None]
    if dead:
        raise DevError(f"{' and '.join(dead)} not running: run `dev/servers up`")
    values = {
        "CONDUCTOR_SERVER_URL": f"{state.conductor_url}/api",
        "LAKECTL_SERVER_ENDPOINT_URL": state.lakefs_url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": state.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": state.secret_access_key,
        "PERAGO_DEV_SERVERS": str(states.state_folder()),
        "PERAGO_DEV_LAKECTL": str(lakefs_folder() / "lakectl"),
    }
    if state.production:
        values |= {
            "PERAGO_DEV_PRODUCTION": "1",
            "PERAGO_DEV_STORE_URL": state.store_url,
            "PERAGO_DEV_STORE_BUCKET": store.BUCKET,
            "PERAGO_DEV_STORE_ACCESS_KEY_ID": state.store_key_id,
            "PERAGO_DEV_STORE_SECRET_ACCESS_KEY": state.backing_secret,
        }
    for key, value in values.items():
        print(f"export {key}={shlex.quote(value)}")
    return 0


def _known() -> State:
    state = states.load()
    if state is None:
        raise DevError("the servers are not up: run `dev/servers up`")
    return state


def _answers(name: str, state: State) -> bool:
    return process(name).pid() is not None and reported_version(name, state) == WANTED[name]


def _start_all(starting: list[str], state: State) -> None:
    """Start these servers, which do not depend on each other, and wait until they answer."""
    for name in starting:
        process(name).stop()
        start(name, state)
    if starting:
        _wait(starting, state)


def _get_everything(*, production: bool) -> None:
    """Fetch and build everything that is missing, in parallel. An error names all missing tools, not just the first."""
    getters: list[Callable[[], object]] = [java_command, lakefs_folder, conductor_archive]
    if production:
        getters += [versitygw_command, postgres_folder]
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(get) for get in getters]
    problems = [problem for job in jobs if (problem := job.exception()) is not None]
    for problem in problems:
        if not isinstance(problem, DevError):
            raise problem
    if problems:
        raise DevError("\n".join(str(problem) for problem in problems))


def _wait(names: list[str], state: State) -> None:
    """Return when all of them answer. If one does not, stop them and raise an error with the end of its log."""
    limit = float(os.environ.get("PERAGO_DEV_START_TIMEOUT", "300"))
    say(f"starting {' and '.join(names)}")
    began = time.monotonic()
    waiting = list(names)
    while waiting:
        time.sleep(0.2)
        for name in waiting:
            help_along(name, state)
        waiting = [name for name in waiting if not _answers(name, state)]
        waited = time.monotonic() - began
        for name in waiting:
            # Allow a grace period, because the pid file is written by the new process itself.
            ended = waited > 5 and process(name).pid() is None
            if ended or waited > limit:
                _give_up(name, names, "ended" if ended else f"is not healthy after {limit:.0f} s")


def _give_up(name: str, started: list[str], what: str) -> None:
    tail = process(name).log_tail()
    for one in started:
        process(one).stop()
    raise DevError(f"{name} {what}; the end of {process(name).log}:\n{tail}")


def main() -> int:
    """Run one subcommand. An expected failure prints one message and returns exit code 1."""
    parser = argparse.ArgumentParser(prog="dev/servers", description=__doc__)
    parser.add_argument("--set", metavar="NAME", help="a set of servers beside the checkout's usual one")
    commands = parser.add_subparsers(dest="command", required=True)
    plain = {"down": down, "status": status, "env": env}
    for command, act in plain.items():
        commands.add_parser(command, help=act.__doc__)
    begin = commands.add_parser("up", help=up.__doc__)
    begin.add_argument(
        "--production", action="store_true", help="on PostgreSQL and an S3 store, as users run them"
    )
    again = commands.add_parser("restart", help=restart.__doc__)
    again.add_argument("name", choices=tuple(WANTED))
    again.add_argument("--fresh", action="store_true", help="forget its state; ports and keys stay")
    arguments = parser.parse_args()
    if arguments.set is not None:
        os.environ["PERAGO_DEV_SET"] = arguments.set
    try:
        if arguments.command == "up":
            return up(production=arguments.production)
        if arguments.command == "restart":
            return restart(arguments.name, fresh=arguments.fresh)
        return plain[arguments.command]()
    except DevError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
