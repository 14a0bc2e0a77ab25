"""`perago map` over one-file repositories on real lakeFS, compared with a plain loop of the same lakeFS calls.

Every turn has a new lakeFS, because with its local store each commit costs more the more branches there have been
before.  Seconds are measured from the first row handed to Spark to the last outcome.  Only `with its start` includes
starting a JVM.  `scripts/bare_rows.py` lists the calls that the plain loop makes, one row after the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench import Row
from bench.harness import Context, cpu_seconds
from perago.backend import open_lakefs
from perago.lake.base import Upload
from perago.settings import load_settings

NAME = "One task over many repositories (`perago map`)"
SERVERS = True
SCRIPTS = Path(__file__).parent / "scripts"
LINEAR = 1.2
"""With ten times the rows, each row may cost this many times as much.

This covers what the server itself adds, and the noise of a shared machine."""
SERVERS_COMMAND = Path(__file__).parents[1] / "dev" / "servers"


def run() -> list[Row]:
    """Measure all figures."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        context = Context(Path(folder))
        few, some, many = (10, 20, 40) if context.quick else (100, 500, 1000)
        bare = _bare(context, some)
        one = _map(context, some, "local[1]").seconds
        two = _map(context, some, "local[2]")
        small = _map(context, few, "local[2]").seconds
        large = _map(context, many, "local[2]").seconds
    return [
        Row(f"plain loop of the calls, {some} rows", some / bare, "rows/s"),
        Row(f"local[1], {some} rows", some / one, "rows/s"),
        Row(f"local[2], {some} rows", some / two.seconds, "rows/s"),
        Row(f"local[2], {some} rows, with its start", some / two.whole, "rows/s"),
        Row("lakeFS's CPU for each row on local[2]", two.lakefs_cpu / some * 1000, "ms"),
        Row("Perago and Spark over the calls, for each row on local[1]", (one - bare) / some * 1000, "ms"),
        Row(f"seconds a row of {many} / of {few} rows", (large / many) / (small / few), "times", LINEAR),
    ]


@dataclass(frozen=True, slots=True)
class _Turn:
    """The seconds of one map: for its rows, for the whole command, and of lakeFS's CPU time."""

    seconds: float
    whole: float
    lakefs_cpu: float


def _map(context: Context, rows: int, master: str) -> _Turn:
    """Run a map with this many rows on a new lakeFS."""
    context.say(f"map: {rows} rows on {master}")
    folder = context.folder / f"map-{rows}-{master}"
    folder.mkdir()
    names = _repositories(context, rows, folder)
    table = [{"repository": name, "number": number} for number, name in enumerate(names)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, table)))
    target = f"{SCRIPTS / 'map_task.py'}:change_one"
    command = [sys.executable, "-m", "perago", "map", target, "rows.jsonl", "-o", "out.jsonl"]
    environ = {**os.environ, "PERAGO_SPARK_MASTER": master, "PERAGO_ROOT": str(folder / "root")}
    began, used = time.monotonic(), cpu_seconds(context, "lakefs")
    done = subprocess.run(
        [*command, "--remote", "--yes", "--json"],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    whole = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit(f"the map ended with {done.returncode}")
    lakefs = cpu_seconds(context, "lakefs") - used
    return _Turn(float(json.loads(done.stdout)["seconds"]), whole, lakefs)


def _bare(context: Context, rows: int) -> float:
    context.say(f"plain loop: {rows} rows")
    folder = context.folder / "bare"
    folder.mkdir()
    names = json.dumps(_repositories(context, rows, folder))
    command = [sys.executable, str(SCRIPTS / "bare_rows.py"), names]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout)["seconds"])


def _repositories(context: Context, rows: int, folder: Path) -> Sequence[str]:
    """Create one-file repositories on a fresh lakeFS, and return their names."""
    subprocess.run([SERVERS_COMMAND, "restart", "lakefs", "--fresh"], check=True, stdout=subprocess.DEVNULL)
    file = folder / "file.txt"
    file.write_text("number")
    upload = Upload(file, "data/file.txt", file.stat().st_size, hashlib.md5(file.read_bytes()).hexdigest())
    names = [f"song-{number:05d}" for number in range(rows)]
    settings = load_settings(context.environ, root=folder / "root")
    with closing(open_lakefs(settings)) as lake, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: lake.create_repository(name, [upload]), names))
    return names
