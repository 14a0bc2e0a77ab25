"""A publish budget of whose fields a test says only those that it is about."""

from __future__ import annotations

from perago import PublishBudget


def a_budget(**said: int) -> PublishBudget:
    """The shortest budget there is, but for what is said."""
    shortest = dict.fromkeys(PublishBudget.model_fields, 1) | {"safety_margin_seconds": 0}
    return PublishBudget(**{**shortest, **said})
