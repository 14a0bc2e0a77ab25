"""Files of a user whose names begin like those that Spark leaves."""

from __future__ import annotations

USERS = [
    "_temporary_notes.txt",
    "_temporary",
    "_temporary_tables/a.csv",
    "__magic_tricks.csv",
    "__magic_tricks/a.csv",
    ".spark-staging.md",
    ".spark-staging-notes/a.csv",
    ".hidden.crc",
    "my_SUCCESS",
    "_SUCCESS.md",
    "_SUCCESSES/a",
    "ours.txt",
    ".ours.txt.crc",
]
