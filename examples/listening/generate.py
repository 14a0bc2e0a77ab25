"""Raw events with planted faults.

Every value is a hash of the row's number, so the same number of rows gives the same data on every machine.  Of a
hundred plays, two are duplicated, one lacks a value, one has a value of the wrong type, and one arrives days late.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .models import DEVICES, GENRES, RawPlay

SONGS = 400
DAYS = 30
FIRST_SECOND = 1_777_593_600  # 1 May 2026
_LATE_SECONDS = 9 * 86_400


def songs(spark: SparkSession) -> DataFrame:
    """Return the catalogue of songs."""
    genre = F.element_at(F.array(*map(F.lit, GENRES)), (F.col("id") % len(GENRES) + 1).cast("int"))
    title = F.concat(F.lit("Song "), F.col("id").cast("string"))
    return (
        spark.range(SONGS)
        .select(F.col("id").alias("song_id"), title.alias("title"), genre.alias("genre"))
        .coalesce(1)
    )


def raw_plays(spark: SparkSession, rows: int) -> DataFrame:
    """Return raw plays: `rows` of them, plus the duplicates."""
    fault = _pick("fault", 100)
    # A user listens for some minutes on one evening, then not again for days.
    minute = _pick("day", DAYS) * 1440 + _pick("evening", 3) * 200 + _pick("minute", 90)
    started = FIRST_SECOND + minute * 60 + _pick("second", 60)
    received = started + F.when(fault == 4, _LATE_SECONDS).otherwise(_pick("delay", 3600))
    copies = F.when(fault < 2, F.array(F.lit(0), F.lit(1))).otherwise(F.array(F.lit(0)))
    device = F.element_at(F.array(*map(F.lit, DEVICES)), (_pick("device", len(DEVICES)) + 1).cast("int"))
    plays = spark.range(rows).select(
        F.concat(F.lit("p"), F.col("id").cast("string")).alias("play_id"),
        F.when(fault != 2, F.concat(F.lit("u"), _pick("user", max(1, rows // 200)).cast("string"))).alias(
            "user"
        ),
        _pick("song", SONGS).cast("string").alias("song_id"),
        device.alias("device"),
        F.date_format(F.timestamp_seconds(started), "yyyy-MM-dd'T'HH:mm:ss").alias("started_at"),
        F.when(fault == 3, F.lit("three minutes"))
        .otherwise((_pick("ms", 300_000) + 1000).cast("string"))
        .alias("ms"),
        F.date_format(F.timestamp_seconds(received), "yyyy-MM-dd'T'HH:mm:ss").alias("received_at"),
        F.explode(copies).alias("copy"),
    )
    return plays.select(*RawPlay.model_fields)


def from_phones(plays: DataFrame) -> Column:
    """Return the condition for plays that arrive as JSON: phones send JSON, everything else sends CSV."""
    return plays["device"] == "phone"


def _pick(what: str, below: int) -> Column:
    """Return a number derived from the row, from 0 up to but not including `below`."""
    return F.pmod(F.xxhash64(F.lit(what), F.col("id")), F.lit(below))
