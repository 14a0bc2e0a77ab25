"""The transformations of the pipeline, in plain PySpark that knows nothing about Perago."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

LATE = "INTERVAL 3 DAYS"
PAUSE_SECONDS = 30 * 60


def judged(raw: DataFrame) -> DataFrame:
    """Return every raw play with typed values and, if it cannot be counted, the reason as `fault`."""
    typed = raw.select(
        "play_id",
        "user",
        F.expr("try_cast(song_id AS BIGINT)").alias("song_id"),
        "device",
        F.expr("try_cast(started_at AS TIMESTAMP)").alias("started_at"),
        F.expr("try_cast(ms AS BIGINT)").alias("ms"),
        F.expr("try_cast(received_at AS TIMESTAMP)").alias("received_at"),
        F.expr("play_id IS NULL OR user IS NULL OR device IS NULL").alias("incomplete"),
    )
    fault = (
        F.when(F.col("incomplete"), "null")
        .when(
            F.expr("song_id IS NULL OR started_at IS NULL OR ms IS NULL OR received_at IS NULL"), "bad type"
        )
        .when(F.expr(f"received_at > started_at + {LATE}"), "late")
    )
    return typed.withColumn("fault", fault).drop("incomplete")


def clean(raw: DataFrame) -> DataFrame:
    """Return the plays that can be counted, each once."""
    good = judged(raw).where("fault IS NULL").drop("fault", "received_at")
    return good.dropDuplicates(["play_id"])


def rejected(raw: DataFrame) -> DataFrame:
    """Return the plays that cannot be counted, and why."""
    return judged(raw).where("fault IS NOT NULL").select("play_id", "user", "started_at", "fault")


def sessions(plays: DataFrame) -> DataFrame:
    """Return sessions: plays by one user without a long pause between them."""
    of_user = Window.partitionBy("user").orderBy("started_at", "play_id")
    seconds = F.unix_timestamp("started_at")
    pause = seconds - F.lag(seconds).over(of_user)
    first = F.when(pause.isNull() | (pause > PAUSE_SECONDS), 1).otherwise(0)
    numbered = plays.withColumn("first", first).withColumn("number", F.sum("first").over(of_user))
    ended = F.timestamp_millis(F.unix_millis("started_at") + F.col("ms"))
    return numbered.groupBy("user", "number").agg(
        F.min("started_at").alias("began_at"),
        F.max(ended).alias("ended_at"),
        F.count(F.lit(1)).alias("plays"),
        F.sum("ms").alias("ms"),
    )


def daily(plays: DataFrame, songs: DataFrame) -> DataFrame:
    """Return the plays, listeners and listening time by day and genre."""
    with_genre = plays.join(F.broadcast(songs.select("song_id", "genre")), "song_id")
    return with_genre.groupBy(F.to_date("started_at").alias("day"), "genre").agg(
        F.count(F.lit(1)).alias("plays"),
        F.countDistinct("user").alias("listeners"),
        F.sum("ms").alias("ms"),
    )
