"""The workflow model: Conductor's workflow JSON, parsed into a tree of steps.

    in the JSON       kind of block    its steps run
    tasks             top              one after the other
    decisionCases     case             if the value equals the case's name
    defaultCase       default          if no case matches the value
    forkTasks         arm              in parallel with the other arms
    loopOver          body             once or more

The reader rejects nothing, because each caller draws the line in a different place: the check accepts types that it
does not know, the embedded orchestrator accepts only those that it can run, and a UI page draws whatever a server has.
A part that Conductor itself cannot read (a step without a name, steps that are not in a list) is listed in `problems`.
A field that only one caller needs is read from `source`, the JSON as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perago.workflow.model.step_types import BRING_NO_STEPS, SIMPLE, Shape, shape_of

Json = Mapping[str, Any]
BlockKind = Literal["top", "case", "default", "arm", "body"]
ITERATION_MARK = "__"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A list of steps, such as a case or an arm.  `name` is the name of the case or the number of the arm."""

    kind: BlockKind
    name: str
    steps: tuple[Step, ...]

    @property
    def is_case(self) -> bool:
        """True for a case of a switch, including the default."""
        return self.kind in ("case", "default")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step in a workflow's JSON, with the blocks of steps that it contains."""

    reference: str
    name: str
    type: str
    source: Json
    inputs: Json = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    join_on: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """The step's shape, which determines how the steps inside it run."""
        return shape_of(self.type)

    @property
    def optional(self) -> bool:
        """True if the workflow continues after the step has failed."""
        return bool(self.source.get("optional"))

    @property
    def input_elsewhere(self) -> bool:
        """True if the step's input does not come from `inputParameters` alone."""
        return bool(self.source.get("inputExpression") or self.source.get("taskDefinition"))

    @property
    def retry_count(self) -> int | None:
        """The number of retries that the step itself sets; None if the number in the TaskDef applies."""
        found = self.source.get("retryCount")
        return None if found is None else int(found)

    @property
    def start_delay(self) -> int:
        """The delay, in seconds, before a worker can receive the task."""
        return int(self.source.get("startDelay") or 0)

    @property
    def evaluator(self) -> str:
        """The language of a switch's expression."""
        return self.source.get("evaluatorType") or ""

    @property
    def expression(self) -> str:
        """A switch's script, or the name of the input parameter that it switches on."""
        return self.source.get("expression") or ""

    @property
    def loop_condition(self) -> str:
        """The script that decides whether a loop continues."""
        return self.source.get("loopCondition") or ""

    def blocks_of(self, kind: BlockKind) -> tuple[Block, ...]:
        """Return the blocks of the given kind."""
        return tuple(block for block in self.blocks if block.kind == kind)

    @property
    def body(self) -> tuple[Step, ...]:
        """The steps that a loop repeats."""
        return next((block.steps for block in self.blocks_of("body")), ())

    def case(self, value: str) -> tuple[Step, ...]:
        """Return the steps that a switch runs for a value."""
        chosen = [block for block in self.blocks_of("case") if block.name == value]
        return next((block.steps for block in (*chosen, *self.blocks_of("default"))), ())

    def walk(self) -> Iterator[Step]:
        """Yield this step and every step inside it, in file order."""
        yield self
        for block in self.blocks:
            for step in block.steps:
                yield from step.walk()

    def inside(self) -> frozenset[str]:
        """Return the references of all steps inside this one."""
        return frozenset(step.reference for step in self.walk()) - {self.reference}


@dataclass(frozen=True, slots=True)
class Spot:
    """The position of a step in a block, and the step that contains the block (None at the top level)."""

    holder: Step | None
    block: Block
    index: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the JSON that Conductor cannot read.  `step` is the reference of the step that it is in, if known."""

    step: str | None
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class WorkflowDefinition:
    """A workflow as a tree, with its steps and their positions indexed by reference.

    If several steps share a reference, `steps` and `trails` contain only the first one, and `twins` contains the reference
    once for each of the others.
    """

    source: Json
    top: Block
    problems: tuple[Problem, ...] = ()
    steps: dict[str, Step] = field(default_factory=dict)
    trails: dict[str, tuple[Spot, ...]] = field(default_factory=dict)
    """The path to each step, keyed by the step's reference: a sequence of positions, from the top level down."""
    twins: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._index(self.top, None, ())

    @property
    def name(self) -> str:
        """The workflow's name."""
        return str(self.source["name"])

    @property
    def version(self) -> int:
        """The workflow's version; Conductor's default is 1."""
        return int(self.source.get("version") or 1)

    @property
    def output_parameters(self) -> Json:
        """The expressions for the workflow's output."""
        return self.source.get("outputParameters") or {}

    @property
    def input_template(self) -> Json:
        """The defaults for the workflow's input."""
        return self.source.get("inputTemplate") or {}

    @property
    def variables(self) -> Json:
        """The initial values of `${workflow.variables.…}`."""
        return self.source.get("variables") or {}

    @property
    def timeout_seconds(self) -> int:
        """The time limit for the whole workflow; 0 means no limit."""
        return int(self.source.get("timeoutSeconds") or 0)

    @property
    def timeout_policy(self) -> str:
        """Conductor's policy for a workflow that exceeds its time limit."""
        return self.source.get("timeoutPolicy") or "ALERT_ONLY"

    @property
    def open_ended(self) -> bool:
        """True if steps may be added while the workflow is running."""
        return any(step.type not in BRING_NO_STEPS for step in self.steps.values())

    def walk(self) -> Iterator[Step]:
        """Yield every step, in file order."""
        for step in self.top.steps:
            yield from step.walk()

    def next_after(self, reference: str) -> Step | None:
        """Return the step that follows this one, or None at the end of the workflow or of a loop's body."""
        for spot in reversed(self.trails[reference]):
            if spot.index + 1 < len(spot.block.steps):
                return spot.block.steps[spot.index + 1]
            if spot.holder is not None and spot.holder.shape == "loop":
                # After the last step of a loop's body, the loop itself decides what runs next.
                return None
        return None

    def holders(self, reference: str) -> list[Step]:
        """Return the steps that contain a step, innermost first."""
        return [spot.holder for spot in reversed(self.trails[reference]) if spot.holder is not None]

    def before(self, reference: str) -> frozenset[str]:
        """Return the references of all steps that precede or contain a step.

        When the step is scheduled, each of them has ended, was skipped, or has been entered.
        """
        found = {step.reference for step in self.holders(reference)}
        for spot in self.trails[reference]:
            for step in spot.block.steps[: spot.index]:
                found.update(inner.reference for inner in step.walk())
        return frozenset(found)

    def _index(self, block: Block, holder: Step | None, above: tuple[Spot, ...]) -> None:
        for index, step in enumerate(block.steps):
            trail = (*above, Spot(holder, block, index))
            if step.reference in self.steps:
                self.twins.append(step.reference)
            else:
                self.steps[step.reference], self.trails[step.reference] = step, trail
            for inner in step.blocks:
                self._index(inner, step, trail)


def read_workflow(
    source: Json, *, named_only: bool = False, deepest: int | None = None
) -> WorkflowDefinition:
    """Parse a workflow's JSON into a tree.

    `named_only` leaves out steps without a usable name, together with everything inside them.  `deepest` limits how many
    levels of nesting are read, for JSON of unknown origin; deeper steps are left out.
    """
    reader = _Reader(named_only, deepest)
    top = Block("top", "", reader.steps(source.get("tasks"), None, 0))
    return WorkflowDefinition(source, top, tuple(reader.problems))


def in_iteration(reference: str, iteration: int) -> str:
    """Return the reference that Conductor gives to a step in one iteration of a loop."""
    return f"{reference}{ITERATION_MARK}{iteration}"


@dataclass(slots=True)
class _Reader:
    named_only: bool
    deepest: int | None
    problems: list[Problem] = field(default_factory=list)

    def steps(self, listed: Any, holder: str | None, level: int) -> tuple[Step, ...]:
        if not isinstance(listed, list):
            if listed is not None and holder is not None:
                self._problem(holder, f"step {holder!r} holds steps that are not a list")
            return ()
        found = []
        for number, source in enumerate(listed if level != self.deepest else (), start=1):
            where = f"step {number}" if holder is None else f"step {number} inside {holder!r}"
            if isinstance(source, Mapping):
                step = self._step(source, where, level)
                found.extend([] if step is None else [step])
            else:
                self._problem(None, f"{where} must be an object, not {type(source).__name__}")
        return tuple(found)

    def _step(self, source: Json, where: str, level: int) -> Step | None:
        reference, name = _text(source, "taskReferenceName"), _text(source, "name")
        kind = str(source.get("type") or SIMPLE)
        if not self._is_named(source, where, kind) and self.named_only:
            return None
        inputs = source.get("inputParameters") or {}
        if not isinstance(inputs, Mapping):
            text = f"step {reference!r}: inputParameters must be an object, not {type(inputs).__name__}"
            self._problem(reference, text)
            inputs = {}
        blocks = []
        for block_kind, block_name, listed in _listed_blocks(source):
            blocks.append(Block(block_kind, block_name, self.steps(listed, reference, level + 1)))
        return Step(reference, name, kind, source, inputs, tuple(blocks), self._join_on(source, reference))

    def _is_named(self, source: Json, where: str, kind: str) -> bool:
        reference, name = source.get("taskReferenceName"), source.get("name")
        if not isinstance(reference, str) or not reference:
            called = f" ({name})" if name else ""
            self._problem(None, f"{where}{called} has no taskReferenceName")
            return False
        if kind == SIMPLE and (not isinstance(name, str) or not name):
            self._problem(reference, f'step {reference!r} has no "name", which names its task')
            return False
        return True

    def _join_on(self, source: Json, reference: str) -> tuple[str, ...]:
        listed = source.get("joinOn")
        if listed is None or isinstance(listed, list):
            return tuple(map(str, listed or ()))
        text = f'step {reference!r}: "joinOn" must be a list of steps, not {type(listed).__name__}'
        self._problem(reference, text)
        return ()

    def _problem(self, step: str | None, message: str) -> None:
        self.problems.append(Problem(step, message))


def _listed_blocks(source: Json) -> Iterator[tuple[BlockKind, str, Any]]:
    """Yield the kind, the name and the JSON of every block inside a step."""
    cases, arms = source.get("decisionCases"), source.get("forkTasks")
    for name, listed in (cases if isinstance(cases, Mapping) else {}).items():
        yield "case", str(name), listed
    if source.get("defaultCase"):
        yield "default", "", source["defaultCase"]
    for number, listed in enumerate(arms if isinstance(arms, list) else []):
        yield "arm", str(number), listed
    if source.get("loopOver"):
        yield "body", "", source["loopOver"]


def _text(source: Json, name: str) -> str:
    found = source.get(name)
    return "" if found is None else str(found)
