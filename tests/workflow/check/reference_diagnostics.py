"""Errors in what steps read and write, by name: the workflow, and its one line."""

from __future__ import annotations

from tests.support.tasks.workflows import fork, join, switch, workflow
from tests.workflow.check.flows import (
    WORKSPACE,
    Json,
    after,
    cases,
    look,
    make,
    run,
)

ERRORS: dict[str, tuple[Json, str]] = {
    # what expressions name
    "a misspelt step": (
        workflow(make("one"), make("two", "${onne.output.workspace}")),
        "step 'two' takes ${onne.output.workspace}, but no step is called 'onne'; did you mean 'one'?",
    ),
    "a step that is not there": (
        workflow(make("one"), make("two", "${download.output.workspace}")),
        "step 'two' takes ${download.output.workspace}, but no step is called 'download'; the steps are one, two",
    ),
    "input instead of workflow.input": (
        workflow(make("one", "${input.workspace}")),
        "step 'one' takes ${input.workspace}, but no step is called 'input'; did you mean ${workflow.input.workspace}?",
    ),
    "a misspelt step inside a text": (
        workflow(make("one"), make("two", after("one"), label="after ${onee.output.result.rows} rows")),
        "step 'two' takes ${onee.output.result.rows}, but no step is called 'onee'; did you mean 'one'?",
    ),
    "a misspelt field of a workflow": (
        workflow(make("one", "${workflow.inputs.workspace}")),
        "step 'one' takes ${workflow.inputs.workspace}, but a workflow has no 'inputs'; did you mean 'input'?",
    ),
    "a misspelt field of a step": (
        workflow(make("one"), make("two", "${one.ouput.workspace}")),
        "step 'two' takes ${one.ouput.workspace}, but a step has no 'ouput'; did you mean 'output'?",
    ),
    "output left out": (
        workflow(make("one"), make("two", "${one.workspace}")),
        "step 'two' takes ${one.workspace}, but a step has no 'workspace'; did you mean ${one.output.workspace}?",
    ),
    "a misspelt field of an output": (
        workflow(make("one"), make("two", "${one.output.workspce}")),
        "step 'two' takes ${one.output.workspce}, but the output of 'one' has no 'workspce'; did you mean 'workspace'?",
    ),
    "result left out": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.rows}")),
        "step 'two' takes ${one.output.rows}, but the output of 'one' has no 'rows'; did you mean "
        "${one.output.result.rows}?",
    ),
    "a workspace of a task without one": (
        workflow(run("count", "one"), make("two", after("one"))),
        "step 'two' takes ${one.output.workspace}, but its task 'count' declares no workspace, so the output has none",
    ),
    "a field that the workspace lacks": (
        workflow(make("one"), make("two", {**WORKSPACE, "ref": "${one.output.workspace.commit}"})),
        "step 'two' takes ${one.output.workspace.commit}, but ${one.output.workspace} has no 'commit'; it "
        "has repository, "
        "branch, ref_type, ref",
    ),
    "a field that the result lacks": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.result.row}")),
        "step 'two' takes ${one.output.result.row}, but ${one.output.result} has no 'row'; did you mean 'rows'?",
    ),
    "a field that a nested model lacks": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.result.parts[0].sise}")),
        "step 'two' takes ${one.output.result.parts[0].sise}, but ${one.output.result.parts[0]} has no 'sise'; "
        "did you mean 'size'?",
    ),
    "a field of a number": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.result.rows.total}")),
        "step 'two' takes ${one.output.result.rows.total}, but ${one.output.result.rows} is of the type "
        "integer, which has no 'total'",
    ),
    "a wrong field that chooses a case": (
        workflow(
            make("one"),
            switch("choose", inputParameters={"x": "${one.output.result.kind}"}, decisionCases={"a": []}),
        ),
        "step 'choose' takes ${one.output.result.kind}, but ${one.output.result} has no 'kind'; it has rows, "
        "parts, totals, "
        "best, anything",
    ),
    # what has not run by then
    "a step that comes later": (
        workflow(look("one", after("two")), make("two")),
        "step 'one' takes ${two.output.workspace}, but 'two' comes later, so it has not run by then",
    ),
    "the step itself": (
        workflow(make("one", after("one"))),
        "step 'one' takes ${one.output.workspace}, but that is the step itself, so it has not run by then",
    ),
    "a step in another arm": (
        workflow(fork("fork", [make("left")], [look("right", after("left"))]), join("join", "left", "right")),
        "step 'right' takes ${left.output.workspace}, but 'left' runs side by side with it, in another arm "
        "of 'fork', so it has "
        "not run by then",
    ),
    "a step in another case": (
        workflow(cases(a=[make("one")], default=[look("two", after("one"))])),
        "step 'two' takes ${one.output.workspace}, but 'one' runs in another case of 'choose', so it has not "
        "run by then",
    ),
    "a step inside the one that reads it": (
        workflow(
            switch(
                "choose",
                inputParameters={"x": "${one.output.result.total}"},
                decisionCases={"a": [look("one")]},
            )
        ),
        "step 'choose' takes ${one.output.result.total}, but 'one' runs inside it, so it has not run by then",
    ),
    # outputs
    "an output of a step that is not there": (
        workflow(make("one"), outputParameters={"ref": "${on.output.workspace.ref}"}),
        "output 'ref' takes ${on.output.workspace.ref}, but no step is called 'on'; did you mean 'one'?",
    ),
    "an output that can only be null": (
        workflow(make("one"), outputParameters={"deep": {"rows": ["${one.output.rows}"]}}),
        "output 'deep' takes ${one.output.rows}, but the output of 'one' has no 'rows'; did you mean "
        "${one.output.result.rows}?",
    ),
    # heads
    "two writers of one workspace": (
        workflow(make("one"), make("two")),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer that starts two steps back": (
        workflow(make("one"), make("two", after("one")), make("three", after("one"))),
        "step 'three' starts from ${one.output.workspace}, but step 'two' has moved that branch on by "
        "then; start it from "
        "${two.output.workspace}",
    ),
    "a writer behind a look from before": (
        workflow(look("before"), make("one"), make("two", after("before"))),
        "step 'two' starts from ${before.output.workspace}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer after a join": (
        workflow(
            fork("fork", [make("left")], [look("right")]),
            join("join", "left", "right"),
            make("after", after("right")),
        ),
        "step 'after' starts from ${right.output.workspace}, but step 'left' has moved that branch on by "
        "then; start it from "
        "${left.output.workspace}",
    ),
    "a writer after writers in all cases": (
        workflow(cases(a=[make("one")], default=[make("two")]), make("three")),
        "step 'three' starts from ${workflow.input.workspace}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a branch that is put together": (
        workflow(
            make("one"),
            make(
                "two",
                {
                    "repository": "${workflow.input.workspace.repository}",
                    "branch": "${one.output.workspace.branch}",
                    "ref": "${workflow.input.workspace.ref}",
                },
            ),
        ),
        "step 'two' starts from ${workflow.input.workspace.ref}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "two writers of one literal workspace": (
        workflow(make("one", {**WORKSPACE, "ref": "abc123"}), make("two", {**WORKSPACE, "ref": "abc123"})),
        "step 'two' starts from abc123, but step 'one' has moved that branch on by then; start it from "
        "${one.output.workspace}",
    ),
    "two writers side by side": (
        workflow(
            fork("fork", [make("left")], [look("mid")], [make("right")]), join("join", "left", "mid", "right")
        ),
        "steps 'left' and 'right' run side by side in 'fork' and both write the branch of "
        "${workflow.input.workspace}: only one "
        "of them can publish; run them one after the other, declare one that writes nothing with read_only=True, "
        'or, where neither sees what the other writes, declare reads, writes and on_advanced="rebase" for both',
    ),
    "two writers side by side on a branch by its name": (
        workflow(
            fork("fork", [make("left", WORKSPACE)], [make("right", WORKSPACE)]), join("join", "left", "right")
        ),
        "steps 'left' and 'right' run side by side in 'fork' and both write the branch songs@main: only "
        "one of them can "
        "publish; run them one after the other, declare one that writes nothing with read_only=True, "
        'or, where neither sees what the other writes, declare reads, writes and on_advanced="rebase" for both',
    ),
}
