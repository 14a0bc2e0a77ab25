"""How far this machine's clock and a server's are apart, by the `Date` of any answer.

lakeFS's gateway refuses requests that were signed more than 15 minutes away from its own clock, so no bytes move then.
Short of that, ages (`sweep --older-than`) and times in logs are off.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from perago.runtime.doctor.finding import Finding

NOTICED = 5.0
REFUSED = 15 * 60.0
_SECONDS = 5.0
_REMEDY = "set this machine's clock, or the server's: have both follow NTP"


@dataclass(frozen=True, slots=True)
class Skew:
    """The least number of seconds that a server's clock is ahead of ours; negative where it is behind."""

    seconds: float


def read_skew(url: str, *, clock: Callable[[], float] = time.time) -> Skew | None:
    """Ask for `url` and compare; None where no answer, or none with a date, comes."""
    before = clock()
    try:
        request = urllib.request.Request(url, method="GET")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_SECONDS) as answer:
            date = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date")
        error.close()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    after = clock()
    try:
        said = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    # The header has whole seconds, and the answer was made at some moment in between.
    if said > after:
        return Skew(said - after)
    return Skew(min(0.0, said + 1 - before))


def look_at_clock(server: str, skew: Skew | None, *, signs: bool) -> Finding:
    """What a difference means; `signs` where requests carry the time in their signature."""
    part = f"clock: {server}"
    if skew is None:
        return Finding(part, "skip", f"{server} told no time")
    off = abs(skew.seconds)
    if off < NOTICED:
        return Finding(part, "ok", f"within {max(1, round(off))} s of this machine's")
    side = "ahead of" if skew.seconds > 0 else "behind"
    says = f"{server}'s clock is {off:.0f} s {side} this machine's"
    if signs and off >= REFUSED:
        return Finding(part, "fail", f"{says}: its gateway refuses requests beyond {REFUSED:.0f} s", _REMEDY)
    return Finding(part, "warn", f"{says}: ages and times in logs are off", _REMEDY)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer as well, and where it leads is somebody else's clock."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
