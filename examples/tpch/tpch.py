"""`make tpch SCALE=1`: generates TPC-H data, runs the pipeline, and compares its answers with DuckDB's.

By default it runs on the embedded servers in the folder `tpch` below PERAGO_ROOT (`.perago`), which it empties; with
REAL=1 on the lakeFS and Conductor that the environment names.  TPCH_WORKFLOW=tpch_few runs only four of the queries.
Every command is shown, so that you can run it again by hand.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
PERAGO = [sys.executable, "-m", "perago"]


def main() -> int:
    """Run everything, and return the exit code: 1 if an answer differs from DuckDB's."""
    sys.path.insert(0, str(PROJECT))
    workflow = os.environ.get("TPCH_WORKFLOW", "tpch")
    scale, real = os.environ.get("SCALE", "1"), os.environ.get("REAL", "0") not in ("", "0")
    # A folder of its own: whoever has set PERAGO_ROOT keeps other work there.
    root = Path(os.environ.get("PERAGO_ROOT") or PROJECT / ".perago").absolute() / "tpch"
    shutil.rmtree(root, ignore_errors=True)
    raw, answers = root / "data" / "raw", root / "answers"
    raw.mkdir(parents=True)
    repository = f"tpch-{secrets.token_hex(4)}" if real else "tpch"
    servers = ["--root", str(root), "--remote" if real else "--local"]
    agreed = ["--yes"] if real else []
    run(
        [
            str(Path(sysconfig.get_path("scripts")) / "tpchgen-cli"),
            "csv",
            "-s",
            scale,
            "--output-dir",
            str(raw),
        ]
    )
    began = time.monotonic()
    run([*PERAGO, "put", repository, str(root / "data"), "--create", *servers, *agreed])
    output = run(
        [
            *PERAGO,
            *("run", f"examples/tpch/flow.py:{workflow}", "--tasks", "examples/tpch/tasks.py"),
            *("--workspace", repository, "--json", *servers, *agreed),
        ]
    )
    ended = json.loads(output)
    seconds = time.monotonic() - began
    if ended["status"] != "COMPLETED":
        print(f"the workflow is {ended['status']}: {ended.get('reason')}")
        return 1
    run([*PERAGO, "get", f"{repository}@{ended['output']['ref']}", "answers", "-o", str(answers), *servers])
    from examples.tpch.compare import differences

    numbers = sorted(int(answer.name.removeprefix("q")) for answer in answers.iterdir())
    found = differences(raw, answers, numbers)
    print("\n".join(found) or f"All {len(numbers)} answers equal DuckDB's.")
    print(f"Scale {scale}: {ended['output']['rows']} rows of answers in {seconds:.0f} s")
    return 1 if found else 0


def run(command: list[str]) -> str:
    """Show and run a command, and return what it prints on stdout."""
    shown = [os.path.relpath(word, PROJECT) if word.startswith(str(PROJECT)) else word for word in command]
    print("$", shlex.join(shown), flush=True)
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode and not done.stdout:
        raise SystemExit(f"`{command[0]}` ended with exit code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
