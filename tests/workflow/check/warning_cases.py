"""Workflows that may fail on some path, by name: the workflow, and its one line."""

from __future__ import annotations

from tests.support.tasks.workflows import fork, join, loop, workflow
from tests.workflow.check.flows import (
    Json,
    after,
    cases,
    look,
    make,
    run,
)

WARNINGS: dict[str, tuple[Json, str]] = {
    "a step that runs only in one case": (
        workflow(cases(a=[make("one")]), look("two", after("one"))),
        "step 'two' takes ${one.output.workspace}, but 'one' runs only in case 'a' of 'choose'; it is null "
        "where that has not run",
    ),
    "a step that runs only in the default case": (
        workflow(
            cases(a=[look("one")], default=[look("two")]), make("three", rows="${two.output.result.total}")
        ),
        "step 'three' takes ${two.output.result.total}, but 'two' runs only in the default case of 'choose'; "
        "it is null where "
        "that has not run",
    ),
    "a step in an arm that nobody waits for": (
        workflow(
            fork("fork", [look("left")], [look("right")]), join("join", "left"), look("after", after("right"))
        ),
        "step 'after' takes ${right.output.workspace}, but no JOIN before it waits for 'right', which runs "
        "in an arm of 'fork'; "
        "it is null where that has not run",
    ),
    "a later step of another arm": (
        workflow(
            fork("fork", [look("left")], [look("right"), look("more", after("left"))]),
            join("join", "left", "more"),
        ),
        "step 'more' takes ${left.output.workspace}, but 'left' runs side by side with it, in another arm of "
        "'fork'; it is null "
        "where that has not run",
    ),
    "an earlier iteration": (
        workflow(loop("loop", look("one", after("two")), look("two"))),
        "step 'one' takes ${two.output.workspace}, but 'two' has not run in the first iteration of the loop; "
        "it is null where "
        "that has not run",
    ),
    "a step that may fail": (
        workflow(look("one") | {"optional": True}, look("two", after("one"))),
        "step 'two' takes ${one.output.workspace}, but 'one' is optional, and has no output where it fails",
    ),
    "a join of nothing": (
        workflow(fork("fork", [look("left")], [look("right")]), join("join")),
        "step 'join' waits for nothing: its \"joinOn\" is empty, so the next step begins at once",
    ),
    "an input that the workflow does not name": (
        workflow(make("one", "${workflow.input.worksapce}"), inputParameters=["workspace"]),
        "step 'one' takes ${workflow.input.worksapce}, but the workflow's inputParameters do not name "
        "'worksapce'; did you mean "
        "'workspace'?",
    ),
    "an output that is written as null": (
        workflow(make("one"), outputParameters={"rows": None}),
        "output 'rows' is always null: it is written so in outputParameters",
    ),
    "a writer after a writer in one case": (
        workflow(cases(a=[make("one")]), make("two")),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' may have moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer after one that may fail": (
        workflow(make("one") | {"optional": True}, make("two")),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' may have moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer in a loop that starts from the input": (
        workflow(loop("loop", make("one"))),
        "step 'one' writes the same branch in every iteration, but starts from ${workflow.input.workspace} "
        "each time; carry its "
        "output over to the next iteration (SET_VARIABLE), or move it out of the loop",
    ),
    "writers side by side, one of them in a case": (
        workflow(fork("fork", [make("left")], [cases(a=[make("right")])]), join("join", "left", "choose")),
        "steps 'left' and 'right' run side by side in 'fork' and both write the branch of "
        "${workflow.input.workspace}: only one "
        "of them can publish; run them one after the other, declare one that writes nothing with read_only=True, "
        'or, where neither sees what the other writes, declare reads, writes and on_advanced="rebase" for both',
    ),
    "a rule of the author's": (
        workflow(run("careful", "one", high=3)),
        "step 'one': params.high: Value error, must be even, got int",
    ),
    "a field that no Conductor is known to have": (
        workflow(make("one", label="${workflow.zone}")),
        "step 'one' takes ${workflow.zone}, but a workflow has no 'zone'",
    ),
}
