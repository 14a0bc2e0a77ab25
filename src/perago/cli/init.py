"""`perago init`: create a ready-to-run project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from perago import __version__
from perago.cli import output
from perago.runtime.doctor.local_checks import check_java
from perago.runtime.scaffold import project_files, project_name, write_project

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The project, and the new folder: letters, digits, - and _.")
]
NoSpark = Annotated[
    bool, typer.Option("--no-spark", help="Write two plain tasks, so that Java is not needed.")
]


def init(name: Name, no_spark: NoSpark = False) -> None:
    """Create a new folder with a ready-to-run project: two tasks, a workflow, data and tests."""
    named = project_name(name)
    texts = project_files(named, spark=not no_spark, version=__version__)
    write_project(Path(named.name), texts)
    for path in texts:
        output.say(f"  {named.name}/{path}")
    java = None if no_spark else check_java(os.environ, needed=True)
    if java is not None and java.level == "fail":
        output.warn(
            f"Java: {java.says}; {java.remedy}, or remove {named.name} and run `perago init {named.name} --no-spark`"
        )
    kinds = "two plain tasks" if no_spark else "a plain task and a Spark task"
    output.say(f"{named.name} is ready: {kinds}, a workflow that chains them, data and tests. Next:")
    output.say(f"  cd {named.name}")
    output.say("  make test")
    output.say("  make run")
