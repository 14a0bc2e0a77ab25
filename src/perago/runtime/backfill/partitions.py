"""Turns `--over` and `--param` into the partitions of a backfill, and checks all of them before anything runs.

    type of the param      values of --over
    date, int              `a..b` (both included), or a list of values and such ranges: `1,5..9`
    str, enum, Literal     a list: `eu,us`

The rule: the rows of a backfill do not get into each other's way.  No two of them write the same path and, if they run on
top of each other's publications, none sees what another one writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from itertools import product
from math import prod
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from perago.declare.task import TaskDefinition
from perago.declare.user_code import user_code
from perago.declare.workspace import WorkspaceSpec
from perago.errors import RuntimeConfigError, TaskInputError
from perago.protocol.ledger import Work
from perago.protocol.suggestions import did_you_mean, listed
from perago.protocol.view import View
from perago.runtime.attempt.contract import dump_params
from perago.runtime.ledger import work_of
from perago.runtime.maps.parse import parse_cell, text_params
from perago.runtime.maps.rows import partition_text

MOST_ROWS = 100_000
_DOTS = re.compile(r"[.]{2}")
"""Stands between the two ends of a range."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INT = re.compile(r"-?[0-9]{1,200}")


@dataclass(frozen=True, slots=True)
class Partition:
    """One filling of a task's templates."""

    params: Mapping[str, Any]
    """All params of the row, as JSON values."""
    names: Mapping[str, str]
    """The params that name the partition, as text."""
    work: Work
    view: View

    def __str__(self) -> str:
        """Return the partition as people read it, such as `day=2026-01-31, region=eu`."""
        return partition_text(self.names)


def check_task(task: TaskDefinition, command: str) -> WorkspaceSpec:
    """Return the spec of a task that has partitions.  Raises `RuntimeConfigError` if it has none."""
    spec = task.workspace
    if spec is None or not spec.names:
        raise RuntimeConfigError(
            f"task {task.name!r} has no partitions: name a param in its paths, such as "
            f"WorkspaceSpec(reads=('raw/day={{day}}',), writes=('clean/day={{day}}',)); `{command}` needs them"
        )
    if spec.read_only:
        raise RuntimeConfigError(
            f"task {task.name!r} only reads, so nothing says which partitions are done: run it with `perago map`"
        )
    return spec


def partitions_of(task: TaskDefinition, over: Sequence[str], params: Sequence[str] = ()) -> list[Partition]:
    """Return one partition per combination of the values of `--over`.  The last name varies fastest.

    Raises `RuntimeConfigError` if anything is wrong with one of them.
    """
    spec = check_task(task, "--over")
    ranges = dict(_ranges(task, spec, over))
    fixed = _fixed(task, params)
    for name in ranges:
        if _key(task, name) in fixed:
            raise RuntimeConfigError(f"{name} is given with --over and with --param: leave one of them out")
    count = prod(len(values) for values in ranges.values())
    if count > MOST_ROWS:
        raise RuntimeConfigError(
            f"--over gives {count:,} rows, and a backfill has at most {MOST_ROWS:,}: give shorter ranges"
        )
    _refuse_missing(task, {*fixed, *(_key(task, name) for name in ranges)})
    keys = [_key(task, name) for name in ranges]
    return [
        partition_of(task, {**fixed, **dict(zip(keys, values, strict=True))})
        for values in product(*ranges.values())
    ]


def partition_of(task: TaskDefinition, sent: Mapping[str, Any]) -> Partition:
    """Return the partition of these params.  Raises `RuntimeConfigError` if the task would refuse them."""
    spec = task.workspace
    assert spec is not None  # noqa: S101 - checked by `check_task`
    try:
        with user_code("the params model"):
            params = task.parse_params(json.dumps(sent))
            view = spec.filled(params).view
            plain = dump_params(params, sent)
    except TaskInputError as error:
        raise RuntimeConfigError(f"{_shown(sent)}: {error}") from None
    names = {name: _text(getattr(params, name)) for name in spec.names}
    return Partition(sent, names, work_of(task, plain, view), view)


def spec_of(task: TaskDefinition, params: Mapping[str, Any]) -> WorkspaceSpec:
    """Return the spec of the attempt that gets these params."""
    assert task.workspace is not None  # noqa: S101 - checked by `check_task`
    return task.workspace.filled(task.parse_params(json.dumps(params)))


def _shown(sent: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in sent.items())


def _text(value: object) -> str:
    value = value.value if isinstance(value, Enum) else value
    return value.isoformat() if isinstance(value, date) else str(value)


# --- --over ------------------------------------------------------------------------------------------------------


def _ranges(
    task: TaskDefinition, spec: WorkspaceSpec, over: Sequence[str]
) -> Iterator[tuple[str, Sequence[Any]]]:
    fields, seen = task.params_model.model_fields, set[str]()
    if not over:
        raise RuntimeConfigError(f"say which partitions, such as --over {spec.names[0]}=…")
    for text in over:
        name, equals, values = text.partition("=")
        if not equals:
            raise RuntimeConfigError(f"--over {text} is not NAME=VALUES, such as {spec.names[0]}=…")
        if name not in spec.names:
            raise RuntimeConfigError(f"--over {name}: {_not_a_template(name, spec, fields)}")
        if name in seen:
            raise RuntimeConfigError(f"--over {name} is given twice: put all values into one list")
        seen.add(name)
        try:
            yield name, _values(fields[name], values)
        except ValueError as error:
            raise RuntimeConfigError(f"--over {name}: {error}") from None


def _not_a_template(name: str, spec: WorkspaceSpec, fields: Mapping[str, FieldInfo]) -> str:
    if name in fields:
        return f"no path of the task names it (they name {listed(spec.names)}); give it with --param {name}=…"
    there_are = f"; there are: {listed(spec.names)}"
    return f"is not a param{did_you_mean(name, fields, otherwise=there_are)}"


def _values(field: FieldInfo, text: str) -> Sequence[Any]:
    """Return the JSON values that an option names, in order and without duplicates.  Raises `ValueError` if it is wrong."""
    kind = field.annotation
    if kind is date:
        return sorted(set(_numbers(text, _day, _iso, "a date such as 2026-01-31")))
    if kind is int:
        return sorted(set(_numbers(text, _whole, int, "a whole number")))
    items = text.split(",")
    if "" in items:
        raise ValueError("a value is empty; give a list such as eu,us")
    if kind is str:
        for item in items:
            if _DOTS.search(item):
                raise ValueError(
                    f"{item!r} looks like a range, and text has none: list the values, or declare a date or int"
                )
        return sorted(set(items))
    known = _choices(kind)
    for item in items:
        if item not in known:
            raise ValueError(f"{item!r} is not one of {listed(known)}{did_you_mean(item, known)}")
    return [value for item, value in known.items() if item in items]


def _choices(kind: Any) -> Mapping[str, Any]:
    """Return the values of an enum or a literal, by the text that names them."""
    members = get_args(kind) if get_origin(kind) is not None else tuple(kind)
    values = [one.value if isinstance(one, Enum) else one for one in members]
    return {str(value): value for value in values}


def _numbers(text: str, parse: Any, show: Any, what: str) -> Iterator[Any]:
    """Yield the values of a list of single values and ranges.  `parse` gives a value's number, `show` the reverse."""
    total = 0
    for item in text.split(","):
        first, *rest = (part.strip() for part in _DOTS.split(item, maxsplit=1))
        last = rest[0] if rest else first
        try:
            start, end = parse(first), parse(last)
        except ValueError:
            raise ValueError(f"{item!r} is not {what}, or a range of them (a..b)") from None
        if end < start:
            raise ValueError(f"the range {item} is empty: its end comes before its start; swap them")
        total += end - start + 1
        if total > MOST_ROWS:
            raise ValueError(f"{text} has more than {MOST_ROWS:,} values: give shorter ranges")
        yield from map(show, range(start, end + 1))


def _day(text: str) -> int:
    if not _DATE.fullmatch(text):
        raise ValueError
    return date.fromisoformat(text).toordinal()


def _iso(number: int) -> str:
    return date.fromordinal(number).isoformat()


def _whole(text: str) -> int:
    if not _INT.fullmatch(text):
        raise ValueError
    return int(text)


# --- --param -----------------------------------------------------------------------------------------------------


def _fixed(task: TaskDefinition, given: Sequence[str]) -> dict[str, Any]:
    """Return the params that are the same in each row, by the name with which they are sent."""
    texts, found = text_params(task), dict[str, Any]()
    known = [_key(task, name) for name in task.params_model.model_fields]
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise RuntimeConfigError(f"--param {text} is not NAME=VALUE")
        if name not in known:
            there_are = f"; there are: {listed(known)}"
            raise RuntimeConfigError(
                f"--param {name}: is not a param{did_you_mean(name, known, otherwise=there_are)}"
            )
        if name in found:
            raise RuntimeConfigError(f"--param {name} is given twice")
        found[name] = parse_cell(name, value, texts)
    return found


def _refuse_missing(task: TaskDefinition, given: set[str]) -> None:
    spec = task.workspace
    assert spec is not None  # noqa: S101 - checked by `check_task`
    for name, field in task.params_model.model_fields.items():
        if field.is_required() and (key := _key(task, name)) not in given:
            instead = f"--over {name}=…, or " if name in spec.names else ""
            raise RuntimeConfigError(f"param {name!r} is missing: give it with {instead}--param {key}=…")


def _key(task: TaskDefinition, name: str) -> str:
    """Return the name with which a param is sent."""
    field = task.params_model.model_fields[name]
    alias = field.validation_alias
    return alias if isinstance(alias, str) else field.alias or name


# --- rows beside each other --------------------------------------------------------------------------------------


def refuse_overlaps(spec: WorkspaceSpec, partitions: Sequence[Partition]) -> None:
    """Raise `RuntimeConfigError` if two rows get into each other's way."""
    writers: dict[str, int] = {}
    for number, partition in enumerate(partitions):
        for root in partition.view.write_roots:
            if (other := writers.setdefault(root, number)) != number:
                raise _overlap(partitions, other, number, root, "write")
    readers: dict[str, list[int]] = {}
    for number, partition in enumerate(partitions):
        for root in partition.view.roots if spec.rebases else partition.view.write_roots:
            for above in _at_or_above(root):
                if (other := writers.get(above, number)) != number:
                    raise _overlap(partitions, other, number, root, "see" if spec.rebases else "write")
            if spec.rebases and len(known := readers.setdefault(root, [])) < 2:
                known.append(number)
    for root, number in writers.items():
        for above in _at_or_above(root):
            for other in readers.get(above, ()):
                if other != number:
                    raise _overlap(partitions, number, other, root, "see")


def _overlap(
    partitions: Sequence[Partition], one: int, other: int, root: str, verb: str
) -> RuntimeConfigError:
    first, second = partitions[one], partitions[other]
    if verb == "write":
        remedy = "name the params of --over in writes, so that each partition has a path of its own"
    else:
        remedy = (
            'with on_advanced="rebase" it would be refused: narrow what the task reads, or leave on_advanced out and run '
            "the rows one after another, which each start from the branch's head"
        )
    what = (
        f"both would write {root!r}"
        if verb == "write"
        else f"the first would write {root!r}, which the second sees"
    )
    return RuntimeConfigError(f"the rows {first} and {second} are not independent: {what}; {remedy}")


def _at_or_above(path: str) -> Iterator[str]:
    """Yield a root and all roots that would hold it."""
    yield path
    if path:
        yield ""
    at = path.find("/")
    while at >= 0:
        if path[:at] != path:
            yield path[:at]
        if path[: at + 1] != path:
            yield path[: at + 1]
        at = path.find("/", at + 1)
