"""The servers themselves, fetched or built once into the cache.

The rule: a thing is made under a `.part` name, under a lock, and renamed when it is whole.  What is there under
its final name can be used; what a killed run left behind is thrown away by the next one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from realservers import CONDUCTOR_VERSION, LAKEFS_VERSION
from realservers.tools import cache_folder, go_command, java_command, locked, maven_command, run, say

LAKEFS_MODULE = "github.com/treeverse/lakefs"
CONDUCTOR_ARTIFACT = f"org.conductoross:conductor-server:{CONDUCTOR_VERSION}:jar:boot"
_BOOT_JAR = f"conductor-server-{CONDUCTOR_VERSION}-boot.jar"
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"


def lakefs_folder() -> Path:
    """The folder that holds the executables `lakefs` and `lakectl`."""
    return once(f"lakefs-{LAKEFS_VERSION}", _build_lakefs)


def conductor_jar() -> Path:
    """Conductor's jar next to the libraries it needs: unpacked, it starts in half the CPU time of the boot jar."""
    return once(f"conductor-{CONDUCTOR_VERSION}-unpacked", _unpack_conductor) / _BOOT_JAR


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache, made by `make` if it is not there yet."""
    target = cache_folder() / name
    if target.exists():
        return target
    with locked(name):
        if not target.exists():
            part = target.with_name(f"{name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            try:
                make(part)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


def _build_lakefs(part: Path) -> None:
    go = go_command()
    say(f"building lakeFS {LAKEFS_VERSION} (about five minutes the first time)")
    module = f"{LAKEFS_MODULE}@v{LAKEFS_VERSION}"
    answer = run([go, "mod", "download", "-json", module], cwd=part, doing="fetching lakeFS's source")
    # `go install` refuses a module with a `replace`, and the module cache is read-only: build from a copy.
    source = part.with_name(part.name + ".source")
    _discard(source)
    try:
        shutil.copytree(json.loads(answer)["Dir"], source, copy_function=shutil.copyfile)
        _make_writable(source)
        stamp = f"-s -w -X {LAKEFS_MODULE}/pkg/version.Version={LAKEFS_VERSION}"
        build = [go, "build", "-buildvcs=false", "-ldflags", stamp, "-o", f"{part}/"]
        run([*build, "./cmd/lakefs", "./cmd/lakectl"], cwd=source, doing="building lakeFS")
    finally:
        _discard(source)


def _make_writable(folder: Path) -> None:
    # copytree gives each folder the read-only mode it has in Go's module cache.
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)


def _discard(folder: Path) -> None:
    # A copy that was cut short still has read-only folders, from which only root may remove anything.
    if folder.exists():
        _make_writable(folder)
        shutil.rmtree(folder)


def _unpack_conductor(part: Path) -> None:
    boot_jar = once(f"conductor-{CONDUCTOR_VERSION}", _fetch_conductor) / _BOOT_JAR
    unpack = [java_command(), "-Djarmode=tools", "-jar", str(boot_jar), "extract", "--force"]
    run([*unpack, "--destination", str(part)], cwd=part, doing="unpacking Conductor")


def _fetch_conductor(part: Path) -> None:
    mvn = maven_command()
    say(f"fetching Conductor {CONDUCTOR_VERSION} (458 MB)")
    quiet = [mvn, "--batch-mode", "--quiet", "--strict-checksums"]
    get = [f"{MAVEN_PLUGIN}:get", f"-Dartifact={CONDUCTOR_ARTIFACT}", "-Dtransitive=false"]
    run([*quiet, *get], cwd=part, doing="fetching Conductor")
    copy = [f"{MAVEN_PLUGIN}:copy", f"-Dartifact={CONDUCTOR_ARTIFACT}", f"-DoutputDirectory={part}"]
    run([*quiet, "--offline", *copy], cwd=part, doing="copying Conductor's jar into the cache")
