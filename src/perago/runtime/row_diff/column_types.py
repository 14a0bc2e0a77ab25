"""Types of columns: one that holds the values of two, those of Delta, and maps, whose entries have no order."""

from __future__ import annotations

from typing import Any

from perago.errors import RuntimeConfigError
from perago.runtime.row_diff.engine import load_duckdb, quoted_name

WIDEST_DECIMAL = 38
INTEGERS = {
    "TINYINT": (True, 8, 3),
    "SMALLINT": (True, 16, 5),
    "INTEGER": (True, 32, 10),
    "BIGINT": (True, 64, 19),
    "HUGEINT": (True, 128, 39),
    "UTINYINT": (False, 8, 3),
    "USMALLINT": (False, 16, 5),
    "UINTEGER": (False, 32, 10),
    "UBIGINT": (False, 64, 20),
}
"""Whether an integer type has a sign, its bits, and the digits of its largest value."""
NATIVE = frozenset([*INTEGERS, "BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR"])
_DELTA_TYPES = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}


def common_type(types: set[str]) -> str:
    """Return a type that holds all values of these types as they are, or VARCHAR for a comparison as text."""
    found: str | None = None
    for one in sorted(types):
        found = one if found is None else _wider(found, one)
    return found or "VARCHAR"


def _wider(one: str, two: str) -> str:
    if one == two:
        return one
    if {one, two} == {"FLOAT", "DOUBLE"}:
        return "DOUBLE"
    if one in INTEGERS and two in INTEGERS:
        return _wider_integer(one, two)
    digits = [_digits(kind) for kind in (one, two)]
    if digits[0] is None or digits[1] is None:
        return "VARCHAR"
    whole = max(digits[0][0], digits[1][0])
    scale = max(digits[0][1], digits[1][1])
    return f"DECIMAL({whole + scale},{scale})" if whole + scale <= WIDEST_DECIMAL else "VARCHAR"


def _wider_integer(one: str, two: str) -> str:
    signed, bits, _ = INTEGERS[one]
    other_signed, other_bits, _ = INTEGERS[two]
    if signed == other_signed:
        return one if bits >= other_bits else two
    return "HUGEINT"


def _digits(kind: str) -> tuple[int, int] | None:
    """Return the digits of an integer or decimal type before and after the point."""
    if kind in INTEGERS:
        return INTEGERS[kind][2], 0
    if kind.startswith("DECIMAL("):
        width, scale = map(int, kind.removeprefix("DECIMAL(").rstrip(")").split(","))
        return width - scale, scale
    return None


def delta_type(kind: Any) -> str:
    """Return the engine's type for a type in a Delta table's schema."""
    if isinstance(kind, str):
        if kind in _DELTA_TYPES:
            return _DELTA_TYPES[kind]
        if kind.startswith("decimal("):
            return kind.upper().replace(" ", "")
        raise RuntimeConfigError(f"a Delta column has the type {kind!r}, which cannot be compared")
    match kind["type"]:
        case "array":
            return f"{delta_type(kind['elementType'])}[]"
        case "map":
            return f"MAP({delta_type(kind['keyType'])}, {delta_type(kind['valueType'])})"
        case "struct":
            fields = (f"{quoted_name(one['name'])} {delta_type(one['type'])}" for one in kind["fields"])
            return f"STRUCT({', '.join(fields)})"
    raise RuntimeConfigError(f"a Delta column has the type {kind['type']!r}, which cannot be compared")


def with_sorted_maps(value: str, kind: str) -> str:
    """Return an expression for a value in which the entries of maps are sorted, because their order means nothing."""
    if "MAP(" not in kind:
        return value
    return _sorted_maps(value, load_duckdb().type(kind), 0)


def _sorted_maps(value: str, kind: Any, depth: int) -> str:
    if "MAP(" not in str(kind):
        return value
    one = f"e{depth}"
    match kind.id:
        case "list" | "array":
            inner = _sorted_maps(one, dict(kind.children)["child"], depth + 1)
            return f"list_transform({value}, lambda {one}: {inner})"
        case "map":
            parts = {name: _sorted_maps(f"{one}.{name}", child, depth + 1) for name, child in kind.children}
            entry = ", ".join(f"{name} := {part}" for name, part in parts.items())
            return f"list_sort(list_transform(map_entries({value}), lambda {one}: struct_pack({entry})))"
        case "struct":
            fields = ", ".join(
                f"{quoted_name(name)} := {_sorted_maps(f'({value}).{quoted_name(name)}', child, depth + 1)}"
                for name, child in kind.children
            )
            return f"CASE WHEN ({value}) IS NULL THEN NULL ELSE struct_pack({fields}) END"
    return value
