"""The tables of the pipeline, each as a model. `None` means that a column may contain nulls."""

from __future__ import annotations

import datetime
from typing import Literal

from pydantic import BaseModel

DEVICES = ("phone", "desktop", "speaker", "car")
GENRES = ("ambient", "folk", "jazz", "pop", "rock", "techno")
FAULTS = ("null", "bad type", "late")
Fault = Literal["null", "bad type", "late"]


class RawPlay(BaseModel):
    """A raw play: all values are text, and any of them may be missing."""

    play_id: str | None
    user: str | None
    song_id: str | None
    device: str | None
    started_at: str | None
    ms: str | None
    received_at: str | None


class Play(BaseModel):
    """A play that can be counted."""

    play_id: str
    user: str
    song_id: int
    device: str
    started_at: datetime.datetime
    ms: int


class Song(BaseModel):
    """A song in the catalogue."""

    song_id: int
    title: str
    genre: str


class ListeningSession(BaseModel):
    """Plays by one user without a pause of more than half an hour."""

    user: str
    number: int
    began_at: datetime.datetime
    ended_at: datetime.datetime
    plays: int
    ms: int


class Daily(BaseModel):
    """The plays of one genre on one day."""

    day: datetime.date
    genre: str
    plays: int
    listeners: int
    ms: int
