"""Loads tasks from targets.

A target is an import path (`app.tasks`; the current folder is on the path) or a file (`jobs/tasks.py`).  The rule: a target
means the same in every process with the same current folder, because executors load their tasks from it again.  A file
inside a package is imported under its dotted name, so its relative imports work; any other file under a name derived from
its path, with its folder on the path, as Python does for a script.

Only tasks that a module declares itself count, not those it imports.  Every failure is one `TaskDefinitionError` with the
file and line of its cause, always a line of the author's code, or, in `collect`, one diagnostic.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from pydantic import ValidationError

from perago.declare.diagnostics import LocatedDiagnostic, SourceLocation, collect_diagnostics, one_line
from perago.declare.task import TaskDefinition, forget_tasks, tasks_declared_in
from perago.errors import TaskDefinitionError
from perago.protocol.suggestions import did_you_mean
from perago.workflow.model.expressions import expressions_in

_LINE = 100


def describe_import_failure(error: BaseException, target: str) -> str:
    """Return an import's failure as one line with its remedy."""
    if isinstance(error, SyntaxError) and error.filename:
        place = SourceLocation(error.filename, error.lineno or 1)
        return f"{place}: cannot be imported: {type(error).__name__}: {one_line(error.msg)}{_correction_hint(place)}"
    what = f"cannot be imported: {_error_text(error)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    if not frames:
        return f"target {target!r}: {what}"
    places = [SourceLocation(frame.filename, frame.lineno or 1) for frame in frames]
    reached = f" (reached from {places[0]})" if len(places) > 1 else ""
    return f"{places[-1]}: {what}{_remedy(error) or _correction_hint(places[-1])}{reached}"


def is_user_file(file: str | None) -> bool:
    """Return whether a file is the author's: not Perago's, not the standard library's, not an installed package's."""
    if file is None or file.startswith("<"):
        return False
    parts = Path(file).parts
    outside = Path(importlib.__file__).parents[1], Path(__file__).parents[1]
    return "site-packages" not in parts and not any(Path(file).is_relative_to(folder) for folder in outside)


def _error_text(error: BaseException) -> str:
    if isinstance(error, ValidationError) and _expressions(error):
        return f"{error.title}: {', '.join(_expressions(error))} cannot be checked before the workflow runs"
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r})"
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _remedy(error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        return "; install it for the Python that runs perago, or correct the import"
    if isinstance(error, SystemExit):
        return '; a module that is imported must not exit: put this below `if __name__ == "__main__":`'
    if isinstance(error, ValidationError) and _expressions(error):
        fields = ", ".join(f"{name}=…" for name in _expressions(error))
        return f"; write given({error.title}, {fields}) in place of {error.title}({fields})"
    return None


def _expressions(error: ValidationError) -> list[str]:
    """Return the fields that hold an expression, which a model cannot check yet."""
    wrong = error.errors(include_url=False, include_context=False)
    return [str(one["loc"][0]) for one in wrong if one["loc"] and any(expressions_in(one["input"]))]


def _correction_hint(place: SourceLocation) -> str:
    line = one_line(linecache.getline(place.file, place.line))
    shown = line if len(line) <= _LINE else line[: _LINE - 1] + "…"
    return f"; correct this line: {shown}" if shown else ""


_MADE_UP = "perago_file_"


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of `collect`; `tasks` are those without a diagnostic."""

    tasks: tuple[TaskDefinition, ...]
    errors: tuple[LocatedDiagnostic, ...]


@dataclass(frozen=True, slots=True)
class FileModule:
    """A module that was loaded from a file under a name that Perago made up."""

    name: str
    file: Path
    digest: str


def loaded_files() -> list[FileModule]:
    """Return the modules of this process with such names; other processes cannot import them by name."""
    return [
        FileModule(name, Path(module.__file__ or ""), module.__perago_digest__)
        for name, module in sorted(sys.modules.items())
        if name.startswith(_MADE_UP)
    ]


def load_tasks(targets: Sequence[str]) -> list[TaskDefinition]:
    """Return the tasks of all targets, in order.  Raises `TaskDefinitionError` if two share a name."""
    tasks: list[TaskDefinition] = []
    for target in targets:
        found = _tasks_of(target)
        if not found:
            raise TaskDefinitionError(_no_task_message(target))
        tasks += found
    unique, clashes = _find_name_clashes(tasks)
    if clashes:
        raise TaskDefinitionError("; ".join(map(str, clashes)))
    return unique


def load_module_task(target: str) -> TaskDefinition:
    """Return the only task of a target."""
    tasks = load_tasks([target])
    if len(tasks) != 1:
        names = ", ".join(task.name for task in tasks)
        raise TaskDefinitionError(f"{target!r} declares {len(tasks)} tasks ({names}), one is wanted")
    return tasks[0]


def collect(targets: Sequence[str]) -> Collected:
    """Load all targets and collect every diagnostic instead of raising the first."""
    tasks: list[TaskDefinition] = []
    with _discard_broken_modules() as diagnostics:
        for target in targets:
            before = len(diagnostics)
            try:
                found = _tasks_of(target)
            except TaskDefinitionError as error:
                diagnostics.append(LocatedDiagnostic(str(error)))
                continue
            tasks += found
            if not found and len(diagnostics) == before:
                diagnostics.append(LocatedDiagnostic(_no_task_message(target)))
        unique, clashes = _find_name_clashes(tasks)
        diagnostics.extend(clashes)
    right = (
        task for task in unique if not any(_is_part_of(task, diagnostic.place) for diagnostic in diagnostics)
    )
    return Collected(tuple(right), tuple(diagnostics))


@contextmanager
def _discard_broken_modules() -> Iterator[list[LocatedDiagnostic]]:
    """Collect diagnostics; a module that holds one, or may have seen one, is removed from `sys.modules`."""
    known = set(sys.modules)
    with collect_diagnostics() as diagnostics:
        yield diagnostics
    if diagnostics:
        for name in [name for name in sys.modules if name not in known]:
            if is_user_file(getattr(sys.modules[name], "__file__", None)):
                del sys.modules[name]
                forget_tasks(name)


def _tasks_of(target: str) -> list[TaskDefinition]:
    return tasks_declared_in(import_target(target).__name__)


def _is_part_of(task: TaskDefinition, place: SourceLocation | None) -> bool:
    """Return whether a diagnostic lies between a task's decorator and the end of its function."""
    if place is None or place.file != task.place.file:
        return False
    lines = [line for *_, line in inspect.unwrap(task.fn).__code__.co_lines() if line]
    return task.place.line <= place.line <= max(lines, default=task.place.line)


def _no_task_message(target: str) -> str:
    if Path(target.replace(".", "/")).is_dir():
        return f"target {target!r}: is a folder, and declares no task itself; name a file in it ({target}/tasks.py)"
    if workflow := _workflow_in(import_target(target)):
        return f"target {target!r}: declares no task; its workflow is called {target}:{workflow}"
    return f"target {target!r}: declares no task; decorate a function of this module with @task"


def _workflow_in(module: ModuleType) -> str | None:
    """Return the name of a workflow in the module, recognised by its method, since the client is not imported here."""
    return next(
        (name for name, value in vars(module).items() if hasattr(type(value), "to_workflow_def")), None
    )


def _suggest_file(target: str) -> str:
    """Return the file that a target may have been meant to name."""
    folder = Path(target).parent
    try:
        files = [
            str(folder / file.name) for file in folder.iterdir() if file.suffix == ".py" and file.is_file()
        ]
    except OSError:
        return ""
    return did_you_mean(target.removeprefix("./"), files)


def _find_name_clashes(
    tasks: Iterable[TaskDefinition],
) -> tuple[list[TaskDefinition], list[LocatedDiagnostic]]:
    found: dict[str, TaskDefinition] = {}
    clashes = []
    for task in tasks:
        first = found.setdefault(task.name, task)
        if first.place != task.place:
            other = SourceLocation(first.place.file, first.place.line)
            clashes.append(
                LocatedDiagnostic(
                    f"name = {task.name!r}: is taken by the task at {other}; give one of them another name",
                    task.place,
                )
            )
    return list(found.values()), clashes


def import_target(target: str) -> ModuleType:
    """Import the module of a target.  Raises `TaskDefinitionError` if that fails."""
    _add_to_path(Path.cwd())
    if target.endswith(".py"):
        return _import_file(target)
    if not target or not all(part.isidentifier() for part in target.split(".")):
        raise TaskDefinitionError(
            f"target {target!r}: must be an import path (app.tasks) or a file (app/tasks.py){_suggest_file(target)}"
        )
    with _explain_import_errors(target):
        return importlib.import_module(target)


def _import_file(target: str) -> ModuleType:
    file = Path(target).resolve()
    if not file.is_file():
        if file.is_dir():
            raise TaskDefinitionError(f"target {target!r}: is a folder, not a file; name a file in it")
        where = f"there is no such file in {file.parent}"
        raise TaskDefinitionError(f"target {target!r}: {where}; correct the path{_suggest_file(target)}")
    dotted, top = _dotted_name(file)
    _add_to_path(top)
    if dotted is not None:
        with _explain_import_errors(target):
            module = importlib.import_module(dotted)
        if Path(module.__file__ or "").resolve() == file:
            return module
    return _execute_file(file, target)


def _dotted_name(file: Path) -> tuple[str | None, Path]:
    """Return a file's name in its package, if it is in one, and the folder to import from."""
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    in_package = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return (".".join(parts), folder) if in_package else (None, file.parent)


class _FromSource(SourceFileLoader):
    """A loader that always compiles the file: cached bytecode may be stale if a file changes twice in a second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _execute_file(file: Path, target: str) -> ModuleType:
    name = f"{_MADE_UP}{sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    with _explain_import_errors(target):
        digest = sha256(file.read_bytes()).hexdigest()
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__perago_digest__", None) == digest:
        return known
    spec = importlib.util.spec_from_file_location(name, file, loader=_FromSource(name, str(file)))
    if spec is None or spec.loader is None:
        raise TaskDefinitionError(f"target {target!r}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    module.__perago_digest__ = digest  # type: ignore[attr-defined]
    forget_tasks(name)
    # Pydantic and typing look a class's module up while it is executed.
    sys.modules[name] = module
    try:
        with _explain_import_errors(target):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


@contextmanager
def _explain_import_errors(target: str) -> Iterator[None]:
    """Turn an import's exception into one error that names the file and line of the cause."""
    try:
        yield
    except TaskDefinitionError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (target == error.name or target.startswith(error.name + ".")):
            where = f"looked in {Path.cwd()} and on the Python path"
            raise TaskDefinitionError(
                f"target {target!r}: there is no module {error.name!r} ({where}); go to the folder it is in, or name "
                f"its file{_suggest_file(target)}"
            ) from None
        raise TaskDefinitionError(describe_import_failure(error, target)) from None
    except (Exception, SystemExit) as error:
        raise TaskDefinitionError(describe_import_failure(error, target)) from None


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
