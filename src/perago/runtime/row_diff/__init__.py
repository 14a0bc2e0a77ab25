"""Compares the rows of a table at two commits: columns, and rows added, removed and changed, with DuckDB.

Files that both commits share (the same path, or the same bytes in the same partition) are not read.  That changes no count,
because all of them are about the *difference of two bags of rows*: equal rows cancel out, one by one, so duplicates
count.  With a key, the rows that remain are paired by it, and pairs are rows that were changed.

    values are equal if              both are null; both are NaN; 0.0 and -0.0; maps, whatever their order
    a column that one side lacks     is null there, as for every reader that merges schemas
    a column whose types differ      is compared by value if one type holds all values of both, else as text
    Parquet, Delta                   have types; a partition column of plain files is text
    CSV                              has text only, and a header in each file; an empty field is null
    JSON lines                       equal as JSON values, whatever the order of keys

Only files that differ are downloaded, to a temporary folder that is removed afterwards.  If they are larger than the
limit, a partitioned table is sampled by whole partitions, and any other table is refused.
"""

from __future__ import annotations

from perago.runtime.row_diff.comparison import diff_rows
from perago.runtime.row_diff.engine import check_engine
from perago.runtime.row_diff.values import (
    LIMIT_BYTES,
    ColumnChange,
    ComparedFiles,
    DiffRequest,
    Row,
    RowDiff,
    Samples,
)

__all__ = [
    "LIMIT_BYTES",
    "ColumnChange",
    "ComparedFiles",
    "DiffRequest",
    "Row",
    "RowDiff",
    "Samples",
    "check_engine",
    "diff_rows",
]
