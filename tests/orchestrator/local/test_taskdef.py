"""A TaskDef's fields: the delays they mean, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.taskdef import parse_taskdef, retry_delay


@pytest.mark.parametrize(
    ("fields", "delays"),
    [
        ({"retryLogic": "FIXED", "retryDelaySeconds": 5}, [5, 5, 5, 5]),
        ({"retryLogic": "LINEAR_BACKOFF", "retryDelaySeconds": 5}, [5, 10, 15, 20]),
        (
            {"retryLogic": "LINEAR_BACKOFF", "retryDelaySeconds": 5, "backoffScaleFactor": 3},
            [15, 30, 45, 60],
        ),
        ({"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 5}, [5, 10, 20, 40]),
        (
            {"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 5, "backoffScaleFactor": 3},
            [5, 10, 20, 40],
        ),
        (
            {"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 5, "maxRetryDelaySeconds": 12},
            [5, 10, 12, 12],
        ),
        ({"retryLogic": "FIXED", "retryDelaySeconds": 5, "maxRetryDelaySeconds": 3}, [3, 3, 3, 3]),
        ({"retryDelaySeconds": 0, "retryLogic": "EXPONENTIAL_BACKOFF"}, [0, 0, 0, 0]),
        ({}, [60, 60, 60, 60]),
    ],
)
def test_the_delay_follows_the_retry_logic(fields: dict[str, Any], delays: list[int]) -> None:
    rules = parse_taskdef({"name": "clean", **fields})
    assert [retry_delay(rules, retries, lambda: 0.5) for retries in range(4)] == delays


def test_jitter_is_added_on_top_at_random() -> None:
    rules = parse_taskdef({"name": "clean", "retryDelaySeconds": 2, "backoffJitterMs": 500})
    assert retry_delay(rules, 0, lambda: 0.0) == 2
    assert retry_delay(rules, 0, lambda: 0.5) == 2.25


def test_a_delay_does_not_grow_without_end() -> None:
    rules = parse_taskdef({"name": "clean", "retryDelaySeconds": 60, "retryLogic": "EXPONENTIAL_BACKOFF"})
    assert retry_delay(rules, 5000, lambda: 0.0) == 2**31 - 1


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"retryCount": -1}, "retryCount is -1"),
        ({"retryCount": "3"}, "retryCount is '3'"),
        ({"retryCount": True}, "retryCount is True"),
        ({"retryLogic": "RANDOM"}, "retryLogic is 'RANDOM', expected one of FIXED"),
        ({"timeoutPolicy": "STOP"}, "timeoutPolicy is 'STOP'"),
        ({"responseTimeoutSeconds": 0}, "responseTimeoutSeconds is 0"),
        ({"timeoutSeconds": 10, "responseTimeoutSeconds": 20}, "must not be more than timeoutSeconds 10"),
        (
            {"timeoutSeconds": 10, "responseTimeoutSeconds": 5, "totalTimeoutSeconds": 9},
            "must not be more than totalTimeoutSeconds 9",
        ),
        ({"inputTemplate": [1]}, "inputTemplate is not an object"),
        ({"name": ""}, "needs a name"),
    ],
)
def test_a_wrong_taskdef_is_refused_and_says_which_field(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(OrchestratorRefused, match=what):
        parse_taskdef({"name": "clean", **fields})


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(OrchestratorRefused, match=r"retryCount.*retryLogic"):
        parse_taskdef({"name": "clean", "retryCount": -1, "retryLogic": "X"})
