"""A workflow definition as a tree of steps, with the step that follows each one.

`parse` has validated the definition, so nothing is checked here.  Each step's place is recorded when the tree is
built: the next step in its list, and the step that holds the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SIMPLE = "SIMPLE"
SWITCH = "SWITCH"
FORK_JOIN = "FORK_JOIN"
JOIN = "JOIN"
NOOP = "NOOP"
DO_WHILE = "DO_WHILE"
LOOP_MARK = "__"


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a workflow's `tasks`, with the lists of steps it holds."""

    reference: str
    name: str
    type: str
    input_parameters: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False
    retry_count: int | None = None
    start_delay: int = 0
    evaluator: str = ""
    expression: str = ""
    cases: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    default_case: Sequence[Step] = ()
    branches: Sequence[Sequence[Step]] = ()
    join_on: Sequence[str] = ()
    loop_condition: str = ""
    loop_over: Sequence[Step] = ()

    def blocks(self) -> Iterator[Sequence[Step]]:
        """Yield the lists of steps inside this one."""
        yield from self.cases.values()
        yield self.default_case
        yield from self.branches
        yield self.loop_over

    def walk(self) -> Iterator[Step]:
        """Yield this step and every step inside it, in the order of the file."""
        yield self
        for block in self.blocks():
            for step in block:
                yield from step.walk()


@dataclass(frozen=True, slots=True)
class _Place:
    step: Step
    parent: Step | None
    following: Step | None


@dataclass(frozen=True, slots=True)
class WorkflowDefinition:
    """A workflow's steps and settings."""

    name: str
    version: int
    steps: Sequence[Step]
    output_parameters: Mapping[str, Any] = field(default_factory=dict)
    input_template: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: int = 0
    timeout_policy: str = "ALERT_ONLY"
    _places: dict[str, _Place] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._index(self.steps, None)

    def step(self, reference: str) -> Step:
        """Return the step of a reference, which has no iteration suffix."""
        return self._places[reference].step

    def next_after(self, reference: str) -> Step | None:
        """Return the step after this one; None at the end of the workflow or of a loop's body."""
        place = self._places[reference]
        while place.following is None:
            # After the last step of a loop's body, the loop itself decides.
            if place.parent is None or place.parent.type == DO_WHILE:
                return None
            place = self._places[place.parent.reference]
        return place.following

    def holders(self, reference: str) -> list[Step]:
        """Return the steps that contain a step, innermost first."""
        found = []
        parent = self._places[reference].parent
        while parent is not None:
            found.append(parent)
            parent = self._places[parent.reference].parent
        return found

    def before(self, reference: str) -> frozenset[str]:
        """Return the references of all steps before a step: they are over, or decided, when it is scheduled."""
        found: set[str] = set()
        for own in [self.step(reference), *self.holders(reference)]:
            parent = self._places[own.reference].parent
            blocks = [self.steps] if parent is None else parent.blocks()
            block = next(block for block in blocks if own in block)
            for step in block[: block.index(own)]:
                found.update(inner.reference for inner in step.walk())
            found.update(() if parent is None else (parent.reference,))
        return frozenset(found)

    def inside(self, loop: Step) -> frozenset[str]:
        """Return the references of all steps in a loop's body."""
        return frozenset(step.reference for step in loop.walk()) - {loop.reference}

    def walk(self) -> Iterator[Step]:
        """Yield every step, in the order of the file."""
        for step in self.steps:
            yield from step.walk()

    def _index(self, block: Sequence[Step], parent: Step | None) -> None:
        for index, step in enumerate(block, start=1):
            following = block[index] if index < len(block) else None
            self._places[step.reference] = _Place(step, parent, following)
            for inner in step.blocks():
                self._index(inner, step)


def in_loop(reference: str, iteration: int) -> str:
    """Return the reference of a loop's step in one iteration."""
    return f"{reference}{LOOP_MARK}{iteration}"


def without_loop(reference: str) -> str:
    """Return the reference without its iteration suffix."""
    return reference.split(LOOP_MARK)[0]
