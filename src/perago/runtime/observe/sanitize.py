r"""Masks secrets in text that leaves the worker, and makes untrusted text safe for a terminal.

Log lines, failure reasons and printed output go through a `Masker`; results are data and do not.  The masker knows each
secret from the settings, both as is and in the forms in which libraries and servers usually show it.  It also recognizes the
signature of a presigned URL, without which the URL is useless, by its parameter name.  It does not recognize a secret that
is split by a line break, or encoded as part of something longer.  A secret of up to three characters is not masked: it
occurs by chance in most lines, and masking it would make them unreadable.

Printed output, reasons, and the names of objects and steps are sanitized as follows, so that they cannot move the cursor,
clear the screen, rename the window, make the terminal reply or beep, or hide earlier text:

    in the text                                           shown
    newline, tab                                          as they are; \n and \t by `one_line`
    a colour or another style (CSI … m)                   kept with `styles`, and reset at the end; else removed
    other whole sequences: cursor, screen, title, link    removed
    any other control character                           escaped: \x1b, \x9b, \r
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote, urlsplit

from perago.settings import CONDUCTOR_KEYS, LAKEFS_NAMES, Settings

MASK = "***"
LONGEST_UNMASKED = 3
"""Secrets of up to this many characters are not masked."""
# These also match inside a longer URL, or in a response that HTTP libraries log as a whole.
_SIGNATURES = [
    rf"(?<={name}{equals})[0-9a-fA-F]+"
    for name in ("X-Amz-Signature", "X-Goog-Signature")
    for equals in ("=", "%3D")
]
_LONGEST_SIGNATURE = 600
_SECRET_KEY = re.compile("secret|password|token", re.IGNORECASE)


class Masker:
    """Masks known secrets in text, including their URL-quoted, JSON-escaped and repr forms."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {form for secret in secrets if not _is_short(secret) for form in _forms(secret)}
        # Longest first: if one secret contains another, no part of the longer one may remain.
        ordered = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join([*map(re.escape, ordered), *_SIGNATURES]))
        self.longest = max(_LONGEST_SIGNATURE, *(len(form.encode()) for form in ordered), 0)
        """Length of the longest form of any secret, in bytes."""

    def __call__(self, text: str) -> str:
        """Return `text` with the secrets masked."""
        return self._known.sub(MASK, text)


def secrets_of(settings: Settings) -> frozenset[str]:
    """Return the secrets from the settings, and their forms in an HTTP header."""
    known = {secret for _, _, secret in _all_secrets(settings)}
    # The settings have no user for Spark's secrets, which are sent in other forms.
    known |= {
        _basic(user, secret) for _, user, secret in _all_secrets(settings) if user is not None and secret
    }
    return frozenset(known - {""})


def short_secrets(settings: Settings) -> list[str]:
    """Return the settings whose secrets are too short to be masked."""
    short = (name for name, _, secret in _all_secrets(settings) if secret and _is_short(secret))
    return list(dict.fromkeys(short))


def _all_secrets(settings: Settings) -> Iterator[tuple[str, str | None, str]]:
    """Yield every secret with its setting and its user.  A secret may be empty."""
    if lakefs := settings.lakefs:
        yield LAKEFS_NAMES[2], lakefs.access_key_id, lakefs.secret_access_key
        yield from ((LAKEFS_NAMES[0], *login) for login in _logins(lakefs.endpoint))
    if conductor := settings.conductor:
        yield CONDUCTOR_KEYS[1], conductor.auth_key or "", conductor.auth_secret or ""
        yield from (("CONDUCTOR_SERVER_URL", *login) for login in _logins(conductor.url))
    yield from (("PERAGO_SPARK_CONF", None, secret) for secret in _spark_secrets(settings.spark_conf))


def _is_short(secret: str) -> bool:
    return len(secret) <= LONGEST_UNMASKED


def _forms(secret: str) -> set[str]:
    """Return the forms of a secret: plain, quoted for a URL in the usual ways, and escaped for JSON or a repr."""
    quoted = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    lower = {re.sub("%..", lambda triplet: triplet[0].lower(), form) for form in quoted}
    return {secret, *quoted, *lower, json.dumps(secret)[1:-1], repr(secret)[1:-1]}


def _logins(url: str) -> list[tuple[str, str]]:
    """Return the user and password from a URL, both as written and percent-decoded."""
    parts = urlsplit(url)
    user, password = parts.username or "", parts.password or ""
    return [(user, password), (unquote(user), unquote(password))]


def _basic(user: str, secret: str) -> str:
    """Return the credentials for HTTP Basic authentication, without the padding, which some clients omit."""
    return base64.b64encode(f"{user}:{secret}".encode()).decode().rstrip("=")


def _spark_secrets(conf: str) -> Iterator[str]:
    """Yield the values in PERAGO_SPARK_CONF that Spark would redact as well, because of their keys."""
    for item in conf.split(";"):
        key, _, value = item.partition("=")
        if _SECRET_KEY.search(key):
            yield value.strip()


_STYLE = r"\x1b\[[0-9;:]*m"
_SEQUENCE = re.compile(
    rf"(?P<style>{_STYLE})"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # cursor, screen, modes
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # titles, links, strings
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PLAIN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]*")
_RESET = "\x1b[0m"


def printable(text: str, *, styles: bool = False) -> str:
    """Return the text in a form that is safe for a terminal. With `styles`, colours are kept and reset at the end."""
    if _PLAIN.fullmatch(text):
        return text
    text = text.replace("\r\n", "\n")
    shown, end, styled = [], 0, False
    for found in _SEQUENCE.finditer(text):
        shown.append(_CONTROL.sub(_escape, text[end : found.start()]))
        if styles and found["style"]:
            shown.append(found[0])
            styled = True
        end = found.end()
    shown.append(_CONTROL.sub(_escape, text[end:]))
    return "".join([*shown, _RESET] if styled else shown)


def one_line(text: str) -> str:
    """Return the text on one line, without styles. Newlines and tabs are escaped, so that a name cannot add a row."""
    return printable(text.replace("\r\n", "\n")).replace("\n", "\\n").replace("\t", "\\t")


def overwritten(line: str) -> str:
    """Return the final state of a line that was overwritten using carriage returns, such as a progress bar."""
    return next((part for part in reversed(line.split("\r")) if part), "")


def _escape(found: re.Match[str]) -> str:
    if found[0] == "\r":
        return "\\r"
    return f"\\x{ord(found[0]):02x}"
