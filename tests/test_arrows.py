"""The import arrows of the house, held by reading every import of every module below src/perago.

    cli → runtime → {declare, protocol, port bases}      adapters → {protocol, errors}      protocol → stdlib, errors
    runtime.worker → runtime.attempt only where attempts are run or reported, and never the other way

`ARROWS` has a row per part: what it may import of perago, besides itself; a folder there means all below it.
`APART` has modules of one part that do not import each other.
`OUTSIDE` narrows what some parts may import from elsewhere, `SDKS` gives each SDK its one place, and `UNUSED` has those that
Perago does without.  Imports inside functions, under TYPE_CHECKING and by `import_module("…")` count too.
A new part needs a row here, and a good reason.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"

PORTS = {"lake.__init__", "lake.base", "orchestrator.__init__", "orchestrator.base"}
BELOW_CLI = {
    "runtime",
    "workflow",
    "spark",
    "declare",
    "protocol",
    "settings",
    "spark_defaults",
    "errors",
    "backend",
    "assembly",
    *PORTS,
}
WORKFLOW = {"workflow.model", "workflow.check"}
ENDING = {"runtime.__init__", "runtime.execution_result", "runtime.internal_branches"}
# Of the worker these alone run or report attempts; the others know only how they ended.
KNOW_ATTEMPTS = {
    "runtime.worker.executor",
    "runtime.worker.executor_protocol",
    "runtime.worker.result_sender",
    "runtime.worker.outbox",
}
WORKER = {
    "declare",
    "protocol",
    "settings",
    "errors",
    "runtime.observe",
    "runtime.lake_lookup",
    "runtime.process",
    "runtime.registration",
    "runtime.root",
    "runtime.internal_branches",
    "runtime.sweep",
    "runtime.worker",
    "runtime.worker.openlineage_sender",
    "workflow.model",
    *KNOW_ATTEMPTS,
    *ENDING,
    *PORTS,
}

ARROWS: dict[str, set[str]] = {
    "__init__": {"declare", "notebook", "protocol", "spark", "errors"},
    # Its imports, apart from errors, are inside functions: importing perago must stay cheap.
    "notebook": {
        "backend",
        "protocol",
        "runtime.__init__",
        "runtime.delta_log",
        "runtime.folder_download",
        "runtime.lake_lookup",
        "runtime.table_files",
        "settings",
        "spark",
        "errors",
        *PORTS,
    },
    "__main__": {"cli"},
    "errors": set(),
    "lakectl_config": {"errors"},
    "settings_reference": set(),
    "spark_defaults": {"errors"},
    "settings": {"protocol", "errors", "lakectl_config", "spark_defaults", "settings_reference"},
    "protocol": {"errors"},
    "declare": {"protocol", "errors", "workflow.model"},
    # Who imports a port must not get an adapter, and its libraries, by accident.
    "lake.__init__": {"lake.base", "protocol", "errors"},
    "lake.base": {"lake.deferred_verification", "protocol", "errors"},
    "lake.deferred_verification": {"errors"},
    "lake.file_copy": set(),
    "lake.local": {"lake.__init__", "lake.base", "lake.file_copy", "protocol", "errors"},
    "lake.lakefs": {
        "lake.__init__",
        "lake.base",
        "lake.file_copy",
        "lake.deferred_verification",
        "protocol",
        "errors",
    },
    "orchestrator.__init__": {"orchestrator.base", "protocol", "errors"},
    "orchestrator.base": {"protocol", "errors"},
    "orchestrator.local": {
        "orchestrator.__init__",
        "orchestrator.base",
        "protocol",
        "errors",
        "workflow.model",
    },
    "orchestrator.conductor": {
        "orchestrator.__init__",
        "orchestrator.base",
        "protocol",
        "errors",
    },
    # The official client's workflow classes, apart from the adapter that talks to a server.
    "orchestrator.conductor.workflow_objects": {"errors"},
    "workflow": {"declare", "protocol", "errors", "orchestrator.conductor.workflow_objects", *WORKFLOW},
    # Importing either of these must not bring the official client along.
    "workflow.model": {"protocol", "errors"},
    "workflow.check": {"declare", "protocol", "errors", "workflow.model"},
    "runtime.__init__": set(),
    "runtime.execution_result": {"protocol", *PORTS},
    "runtime.internal_branches": {
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.execution_result",
        *PORTS,
    },
    "runtime.ledger": {"declare", "protocol", "errors", "runtime.__init__", "runtime.lake_lookup", *PORTS},
    "runtime.root": {"protocol", "errors"},
    "runtime.periodic": set(),
    "runtime.process": {"protocol", "runtime.periodic", "runtime.root"},
    "runtime.observe": {
        "protocol",
        "settings",
        "errors",
        "runtime.process",
        "orchestrator.base",
        *ENDING,
    },
    "runtime.scaffold": {"errors", "runtime.__init__", "runtime.whole_folder"},
    "runtime.whole_folder": set(),
    "runtime.doctor": {
        "backend",
        "declare",
        "settings",
        "lakectl_config",
        "spark_defaults",
        "errors",
        "protocol",
        "runtime.__init__",
        "runtime.lake_lookup",
        "runtime.observe",
        "runtime.registration",
        "runtime.root",
        *PORTS,
    },
    # Decides steps as their attempts would, and is given its orchestrator.
    "runtime.plan": {
        "declare",
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.attempt",
        "runtime.ledger",
        "workflow.model",
        *PORTS,
    },
    "runtime.worker.hosted.engine": set(),
    "runtime.registration": {"declare", "errors", "workflow.model", *PORTS},
    "runtime.submit": {
        "declare",
        "errors",
        "runtime.__init__",
        "runtime.lake_lookup",
        "protocol",
        "runtime.registration",
        *WORKFLOW,
        *PORTS,
    },
    "runtime.schedules": {"errors", "runtime.__init__", "runtime.submit", "protocol", *PORTS},
    # A run, a map and `doctor` open a backend; of the worker only the executor does.
    "runtime.runs": WORKER | {"backend", "runtime.folder_upload"},
    "runtime.folder_upload": {
        "protocol",
        "settings",
        "errors",
        "runtime.__init__",
        "runtime.attempt",
        "runtime.branch_commit",
        *PORTS,
    },
    "runtime.put_table": {
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.folder_upload",
        "runtime.lake_lookup",
        *PORTS,
    },
    "runtime.folder_download": {
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.lake_lookup",
        "runtime.whole_folder",
        *PORTS,
    },
    "runtime.lake_lookup": {"protocol", "errors", *PORTS},
    "runtime.reproduce": {
        "declare",
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.attempt",
        "runtime.internal_branches",
        "runtime.lake_lookup",
        "runtime.ledger",
        "runtime.upstream",
        *PORTS,
    },
    "runtime.upstream": {"protocol", "errors", "runtime.__init__", "runtime.blame", *PORTS},
    "runtime.delta_log": {"errors", *PORTS},
    "runtime.json_lines": {"errors"},
    "runtime.table_files": {"errors", "runtime.__init__", "runtime.delta_log", *PORTS},
    "runtime.row_diff": {
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.json_lines",
        "runtime.lake_lookup",
        "runtime.table_files",
        *PORTS,
    },
    "runtime.dev_branch": {
        "errors",
        "runtime.__init__",
        "runtime.lake_lookup",
        "runtime.root",
        *PORTS,
    },
    "runtime.blame": {"protocol", "errors", "runtime.__init__", "runtime.lake_lookup", *PORTS},
    "runtime.branch_commit": {
        "protocol",
        "settings",
        "errors",
        "runtime.__init__",
        "runtime.internal_branches",
        *PORTS,
    },
    "runtime.branch_changes": {
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.branch_commit",
        "runtime.lake_lookup",
        *PORTS,
    },
    "runtime.attempt": {
        "runtime.ledger",
        "declare",
        "protocol",
        "settings",
        "errors",
        "runtime.lake_lookup",
        "runtime.process",
        "runtime.root",
        *ENDING,
        *PORTS,
    },
    # Rows of a table as attempts: they know the transaction, and no worker.
    "runtime.maps": {
        "backend",
        "declare",
        "protocol",
        "settings",
        "errors",
        "runtime.attempt",
        "runtime.observe",
        "runtime.root",
        *ENDING,
        *PORTS,
    },
    # A map whose table is made from a task's partitions.
    "runtime.backfill": {
        "declare",
        "protocol",
        "errors",
        "runtime.__init__",
        "runtime.attempt",
        "runtime.lake_lookup",
        "runtime.ledger",
        "runtime.maps",
        "runtime.runs",
        *PORTS,
    },
    "runtime.sweep": {
        "protocol",
        "settings",
        "errors",
        "runtime.ledger",
        "runtime.root",
        *ENDING,
        *PORTS,
    },
    "runtime.worker": WORKER,
    **dict.fromkeys(KNOW_ATTEMPTS, WORKER | {"runtime.attempt"}),
    "runtime.worker.executor": WORKER | {"runtime.attempt", "backend"},
    "runtime.worker.openlineage_sender": WORKER,
    # Executors elsewhere: the worker knows them as links, and the engine that hosts them as jobs.
    "runtime.worker.hosted": WORKER | {"runtime.worker.hosted.engine"},
    "spark": {
        "runtime.__init__",
        "runtime.attempt",
        "runtime.worker.hosted.engine",
        "runtime.periodic",
        "runtime.maps",
        "runtime.root",
        "runtime.table_files",
        "declare",
        "protocol",
        "settings",
        "spark_defaults",
        "errors",
        *PORTS,
    },
    # Its imports of adapters, places and Spark are inside methods.
    "backend": {
        "declare",
        "errors",
        "lake",
        "orchestrator",
        "runtime.__init__",
        "runtime.attempt",
        "runtime.root",
        "runtime.runs",
        "settings",
        "spark",
        *PORTS,
    },
    "assembly": {
        "backend",
        "lake",
        "orchestrator",
        "runtime",
        "spark",
        "declare",
        "protocol",
        "settings",
        "errors",
        *PORTS,
    },
    "ui": {
        "protocol",
        "settings",
        "errors",
        "runtime.blame",
        "runtime.lake_lookup",
        "runtime.observe",
        "runtime.runs",
        "runtime.upstream",
        "runtime.table_files",
        "workflow.model",
        *PORTS,
    },
    "testing": {"__init__", "lake", "orchestrator", *BELOW_CLI},
    "cli": {"__init__", "ui", *BELOW_CLI},
    # Beside the package: every pytest run loads it, and must not load Perago by that.
    "perago_pytest": {"testing"},
}

OUTSIDE: dict[str, set[str]] = {
    "errors": set(),
    "protocol": set(),
    "workflow.model": set(),
    "declare": {"pydantic", "pydantic_core", "typing_extensions"},
}

SDKS = {
    "obstore": "lake",
    "conductor": "orchestrator.conductor.workflow_objects",
    "pyspark": "spark",
    "py4j": "spark",
    "duckdb": "runtime.row_diff",
    "openlineage": "runtime.worker.openlineage_sender",
    "jinja2": "ui",
    "starlette": "ui",
    "uvicorn": "ui",
}
# Slow to import, or changing the whole process: Perago has small clients of its own (decision 0040).
UNUSED = {"lakefs_sdk", "httpx", "requests"}


# Modules of one part that know of each other only by the values that a third one carries between them.
APART = {
    "perago.runtime.attempt.place": {"perago.runtime.attempt.publisher", "perago.runtime.attempt.staging"},
    "perago.runtime.attempt.publisher": {"perago.runtime.attempt.place"},
    "perago.runtime.attempt.staging": {"perago.runtime.attempt.place"},
    "perago.spark.places": {"perago.runtime.attempt.publisher", "perago.runtime.attempt.staging"},
}


# Outside the lakes themselves, the only modules that make a call which moves a branch.
MOVE_BRANCHES = {
    "perago.runtime.attempt.publisher",
    "perago.runtime.doctor.permission_probe",
    "perago.runtime.branch_commit",
}


def part_of(module: str) -> str | None:
    """The row of ARROWS that a module below perago belongs to: the longest that fits."""
    name = module.removeprefix("perago.")
    rows = [row for row in ARROWS if name == row or name.startswith(f"{row}.")]
    return max(rows, key=len, default=None)


def module_files(src: Path) -> dict[str, Path]:
    """Every module's dotted name and file; a package's own file ends in `.__init__`."""
    return {".".join(path.relative_to(src).with_suffix("").parts): path for path in sorted(src.rglob("*.py"))}


def imported_names(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and absolute dotted name of everything a module imports, wherever in the file it does so."""
    package = module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def module_of(name: str, files: dict[str, Path]) -> str:
    """The module that an imported name lives in: `perago.lake.base.Lake` is in `perago.lake.base`."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        candidate = ".".join(parts[:length])
        if candidate in files:
            return candidate
        if f"{candidate}.__init__" in files:
            return f"{candidate}.__init__"
    return name


def allows(part: str, target: str) -> bool:
    """Return whether a part may import another: by its row, or by the folder that it is in."""
    return target in ARROWS[part] or target.split(".")[0] in ARROWS[part]


def complaint(module: str, name: str, files: dict[str, Path]) -> str | None:
    """Return why this module may not import this name, or None."""
    part = part_of(module)
    if part is None:
        return "its part has no row in ARROWS (tests/test_arrows.py)"
    top = name.split(".")[0]
    if top == "perago":
        if module_of(name, files) in APART.get(module, ()):
            return "the two are to be kept apart"
        target = part_of(module_of(name, files))
        if target == part or allows(part, target or ""):
            return None
        return f"{part} may import of perago: {', '.join(sorted(ARROWS[part])) or 'nothing'}"
    if top in SDKS:
        below = f"{part}.".startswith(f"{SDKS[top]}.")
        return None if below else f"{top} belongs below {SDKS[top].replace('.', '/')}/"
    if part in OUTSIDE and top not in OUTSIDE[part] and top not in sys.stdlib_module_names:
        return f"{part} may import from outside: {', '.join(['stdlib', *sorted(OUTSIDE[part])])}"
    return f"{top} is not used in Perago" if top in UNUSED else None


def broken_arrows(src: Path) -> list[str]:
    """Return a line per forbidden import: file, line, what it imports, and the rule."""
    files = module_files(src)
    broken = []
    for module, path in files.items():
        tree = ast.parse(path.read_text(), str(path))
        for line, name in imported_names(module, tree):
            why = complaint(module, name, files)
            if why:
                broken.append(f"{path.relative_to(src)}:{line} imports {name}: {why}")
    return broken


def test_every_import_follows_the_arrows() -> None:
    broken = broken_arrows(SRC)

    assert not broken, "forbidden imports:\n  " + "\n  ".join(broken)


def test_every_module_belongs_to_a_part() -> None:
    homeless = [module for module in module_files(SRC) if part_of(module) is None]

    assert not homeless, f"give these a row in ARROWS: {homeless}"


def test_every_row_names_modules_that_there_are() -> None:
    modules = [module.removeprefix("perago.") for module in module_files(SRC)]
    named = {*ARROWS, *(name for row in ARROWS.values() for name in row)}
    gone = [name for name in named if not any(f"{one}.".startswith(f"{name}.") for one in modules)]
    gone += [name for row in APART.items() for name in (row[0], *row[1]) if name not in module_files(SRC)]

    assert sorted(gone) == [], "these are gone, take them out of ARROWS and APART"


def moves_branches(tree: ast.Module) -> bool:
    """Return whether a module calls `merge` or `relocate` of a lake."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in ("merge", "relocate") for call in calls)


def test_only_the_publisher_a_put_and_the_doctor_move_branches() -> None:
    outside = {m: path for m, path in module_files(SRC).items() if not m.startswith("perago.lake.")}

    assert {m for m, path in outside.items() if moves_branches(ast.parse(path.read_text()))} == MOVE_BRANCHES


def test_importing_perago_loads_no_sdk() -> None:
    known = sorted({*SDKS, *UNUSED})
    script = f"import sys, perago; print(sorted(set({known}) & sys.modules.keys()))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr
