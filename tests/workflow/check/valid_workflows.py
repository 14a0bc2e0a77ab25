"""Workflows that work, by what they do."""

from __future__ import annotations

from tests.support.tasks.workflows import fork, join, loop, workflow
from tests.workflow.check.flows import (
    INPUT,
    Json,
    after,
    cases,
    look,
    make,
    run,
    system,
    with_input,
)

RIGHT: dict[str, Json] = {
    "a chain": workflow(
        make("one"),
        make("two", after("one"), rows="${one.output.result.rows}"),
        look("three", after("two")),
        make("four", after("three")),
        outputParameters={
            "ref": "${four.output.workspace.ref}",
            "first": "${one.output.result.parts[0].size}",
        },
    ),
    "what only conductor knows": workflow(
        make("one", rows="${workflow.variables.rows}", label="${CPEWF_TASK_ID}"),
        make(
            "two",
            after("one"),
            label="${one.output.result.parts[*].size}",
            rows="${one.output.result.anything.x.y}",
        ),
        outputParameters={
            "total": "${one.output.result.totals.whatever}",
            "length": "${one.output.result.parts.length()}",
            "name": "${one.output.result.best.name}",
            "nested": "${one.output.result.totals.${workflow.input.key}}",
            "escaped": "$${onne.output}",
            "key": "${one.output['result']['rows']}",
            "status": "${one.status} ${workflow.status} ${one.retryCount}",
            "whole": "${one}",
        },
    ),
    "params from elsewhere": workflow(
        with_input("one", workspace=INPUT, params="${workflow.input.params}"),
        run("moving", "two", one="${workflow.input.one}", top=3),
        run("careful", "three", low="${workflow.input.low}", high=2, file="${workflow.input.file}"),
        run("careful", "four", low=5, high="${workflow.input.high}"),
        run("loose", "five", anything=1),
        make(
            "six",
            after("one"),
            limits={"names": ["a", "${workflow.input.name}"]},
            label="x${workflow.input.x}",
        ),
    ),
    "system tasks, whose outputs nobody knows": workflow(
        system("INLINE", "inline", expression="1", evaluatorType="graaljs"),
        system("HTTP", "http", uri="http://example.com/${inline.output.result}"),
        system("SET_VARIABLE", "set", workspace="${workflow.input.workspace}"),
        make("one", "${workflow.variables.workspace}", rows="${http.output.response.body.rows}"),
        make("two", "${http.output.response.body.workspace}"),
        system("SUB_WORKFLOW", "sub", workspace="${one.output.workspace}"),
        make("three", "${sub.output.workspace}"),
        system("DYNAMIC", "dynamic", taskToExecute="make"),
        make("four", "${dynamic.output.workspace}"),
    ),
    "steps that come in while it runs": workflow(
        system("FORK_JOIN_DYNAMIC", "many", dynamicTasks="${workflow.input.tasks}"),
        join("join"),
        make("one", "${part_7.output.workspace}"),
        outputParameters={"last": "${part_9.output.result}"},
    ),
    "cases that leave null where null is taken": workflow(
        cases(a=[look("one")], default=[look("two")]),
        make("three", day="${one.output.result.total}"),
        system("INLINE", "both", left="${one.output.result.total}", right="${two.output.result.total}"),
        outputParameters={"one": "${one.output.result.total}", "two": "${two.output.result.total}"},
    ),
    "the only case that goes on": workflow(
        cases(a=[make("one")], default=[system("TERMINATE", "stop", terminationStatus="FAILED")]),
        make("two", after("one")),
    ),
    "a fork of looks, and one writer": workflow(
        make("one"),
        fork(
            "fork", [look("left", after("one"))], [make("right", after("one")), look("check", after("right"))]
        ),
        join("join", "left", "check"),
        make(
            "two",
            after("right"),
            rows="${left.output.result.total}",
            label="${join.output.left.result.total}",
        ),
    ),
    "arms on branches of their own": workflow(
        fork("fork", [make("left", "${workflow.input.left}")], [make("right", "${workflow.input.right}")]),
        join("join", "left", "right"),
        make("more", after("left")),
        make("most", after("right")),
    ),
    "an arm that waits for another": workflow(
        fork("fork", [make("left")], [join("wait", "left"), make("right", after("left"))]),
        join("join", "right"),
    ),
    "a loop": workflow(
        make("one"),
        loop(
            "loop",
            look("again", after("one")),
            run("loose", "two", top="${loop.output.iteration}", names="${again.output.result.total}"),
            inputParameters={"total": "${again.output.result.total}"},
        ),
        make("three", after("one"), rows="${again.output.result.total}"),
    ),
    "a loop that hands its workspace on": workflow(
        system("SET_VARIABLE", "start", workspace="${workflow.input.workspace}"),
        loop(
            "loop",
            make("one", "${workflow.variables.workspace}"),
            system("SET_VARIABLE", "next", workspace=after("one")),
        ),
        make("two", after("one")),
    ),
    "a loop of two writers": workflow(
        loop("loop", make("one", "${workflow.variables.workspace}"), make("two", after("one"))),
        make("three", after("two")),
    ),
    "another branch from the same commit": workflow(
        make("one"),
        make("two", {"repository": "songs", "branch": "other", "ref": "${workflow.input.workspace.ref}"}),
    ),
    "an input that is not inputParameters": workflow(
        {
            "name": "make",
            "taskReferenceName": "one",
            "inputExpression": {"type": "JSON_PATH", "expression": "x"},
        }
    ),
    "a retry that reads its own past": workflow(
        run("count", "one"), system("INLINE", "two", before="${two.retryCount}")
    ),
}
