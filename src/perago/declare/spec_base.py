"""The base class of all declared values.  They are frozen, reject unknown fields, and report errors in the same way.

Pydantic finds the errors, and this module rewords them for the author of the declaration.  A `ValidationError` never
leaves this module: `diagnostics` reports it as a `TaskDefinitionError`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from perago.declare.diagnostics import BrokenRule, Diagnostic, calling_place, report
from perago.protocol.suggestions import did_you_mean

_JAVA_INT = 2**31 - 1
"""The largest Java int.  Conductor stores the numbers in a TaskDef as Java ints."""

Whole = Annotated[int, Field(strict=True, ge=0, le=_JAVA_INT)]
Positive = Annotated[int, Field(strict=True, ge=1, le=_JAVA_INT)]
Flag = Annotated[bool, Field(strict=True)]


class SpecBase(BaseModel):
    """Base class of the values that task authors declare.  Unknown fields are rejected.

    The docstring below a field is for editors.  Pydantic's own support for these docstrings is off, because it reads
    every source file at import.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            report(_diagnostics(type(self), error), calling_place())
            super().__init__(**self._placeholder_values())

    @classmethod
    def _placeholder_values(cls) -> dict[str, Any]:
        """Return placeholder values for an invalid declaration: defaults, and dummies for required fields."""
        return {}


def _diagnostics(declared: type[SpecBase], error: ValidationError) -> list[Diagnostic]:
    return [_diagnostic(declared, details) for details in error.errors(include_url=False)]


def _diagnostic(declared: type[SpecBase], details: ErrorDetails) -> Diagnostic:
    broken = details.get("ctx", {}).get("error")
    path = [*details["loc"], broken.field] if isinstance(broken, BrokenRule) else details["loc"]
    field = declared.__name__ + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    if isinstance(broken, BrokenRule):
        return Diagnostic(field, str(broken), broken.value)
    if details["type"] == "missing":
        return Diagnostic(field, f"is required: add {details['loc'][-1]}=…")
    return Diagnostic(field, _rule(declared, details), details["input"])


def _rule(declared: type[SpecBase], details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            meant = did_you_mean(str(details["loc"][-1]), declared.model_fields)
            return (
                f"is not a field of {declared.__name__}, which has {', '.join(declared.model_fields)}{meant}"
            )
        case "greater_than_equal":
            return f"must be {context['ge']} or more"
        case "less_than_equal":
            return f"must be {context['le']} or less"
        case "literal_error":
            meant = did_you_mean(str(details["input"]), re.findall(r"'([^']+)'", context["expected"]))
            return f"must be one of {context['expected']}{meant}"
        case "int_type":
            return "must be a whole number"
        case "bool_type":
            return "must be True or False"
        case "string_type":
            return "must be text"
        case "model_type":
            return f"must be a {context['class_name']}"
        case "value_error":
            return str(context["error"])
        case _:
            return details["msg"]
