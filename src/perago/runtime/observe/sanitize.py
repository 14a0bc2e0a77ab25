"""Hiding the secrets of the settings in everything that leaves the worker as text.

Log lines, failure reasons and what a body prints all go through a `Masker`; results are data and do not.  A secret is
known as it is and in the forms in which libraries and servers usually show it, and the signature of a presigned address,
without which the address is of no use, by what stands before it.  Cut in two by a line break, or
hidden in something longer that was encoded as a whole, it is not known for what it is.

Texts that others have written, made fit for a reader's terminal: what bodies print, reasons, names of objects and steps.

    in the text                                           shown
    newline, tab                                          as they are; \n and \t where all has to be `one_line`
    a colour or another style (CSI … m)                   as it is where `styles` are wanted, ended with the text; else gone
    other whole sequences: cursor, screen, title, link    gone
    any other control character                           written out: \x1b, \x9b, \r

The rule: nothing that is left moves a cursor, clears, renames, answers or beeps; so no text hides what stands before it.
What a progress bar has drawn again and again is one line (`overwritten`): as a terminal would leave it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote, urlsplit

from perago.settings import Settings

MASK = "***"
# Also as a part of a longer URL, or in an answer that HTTP libraries log as a whole.
_SIGNATURES = [
    rf"(?<={name}{equals})[0-9a-fA-F]+"
    for name in ("X-Amz-Signature", "X-Goog-Signature")
    for equals in ("=", "%3D")
]
_LONGEST_SIGNATURE = 600
_SECRET_KEY = re.compile("secret|password|token", re.IGNORECASE)


class Masker:
    """Hides known secrets in a text, also as they stand in a URL, in JSON or in a repr."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {form for secret in secrets if secret for form in _forms(secret)}
        # The longest first: a secret that holds another one must not leave its rest behind.
        ordered = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join([*map(re.escape, ordered), *_SIGNATURES]))
        self.longest = max(_LONGEST_SIGNATURE, *(len(form.encode()) for form in ordered), 0)
        """Bytes of the longest form."""

    def __call__(self, text: str) -> str:
        """`text` without the secrets."""
        return self._known.sub(MASK, text)


def secrets_of(settings: Settings) -> frozenset[str]:
    """The secret strings among the settings, and what an HTTP header makes of them."""
    logins: list[tuple[str, str]] = []
    if lakefs := settings.lakefs:
        logins += [(lakefs.access_key_id, lakefs.secret_access_key), *_logins(lakefs.endpoint)]
    if conductor := settings.conductor:
        logins += [(conductor.auth_key or "", conductor.auth_secret or ""), *_logins(conductor.url)]
    known = {secret for _, secret in logins}
    known |= {_basic(user, secret) for user, secret in logins if secret}
    known |= set(_of_spark(settings.spark_conf))
    return frozenset(known - {""})


def _forms(secret: str) -> set[str]:
    """How a secret may be written: plain, quoted for a URL in the usual ways, escaped for JSON or a repr."""
    quoted = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    lower = {re.sub("%..", lambda triplet: triplet[0].lower(), form) for form in quoted}
    return {secret, *quoted, *lower, json.dumps(secret)[1:-1], repr(secret)[1:-1]}


def _logins(url: str) -> list[tuple[str, str]]:
    """User and password of a URL, as they are written and as they are meant."""
    parts = urlsplit(url)
    user, password = parts.username or "", parts.password or ""
    return [(user, password), (unquote(user), unquote(password))]


def _basic(user: str, secret: str) -> str:
    """What HTTP's Basic authentication sends, without the padding: some leave it out."""
    return base64.b64encode(f"{user}:{secret}".encode()).decode().rstrip("=")


def _of_spark(conf: str) -> Iterator[str]:
    """The values in PERAGO_SPARK_CONF that Spark would hide too, by their keys."""
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
    """The text as it may be written to a terminal; with `styles` the colours in it stay, and end where it does."""
    if _PLAIN.fullmatch(text):
        return text
    text = text.replace("\r\n", "\n")
    shown, end, styled = [], 0, False
    for found in _SEQUENCE.finditer(text):
        shown.append(_CONTROL.sub(_written_out, text[end : found.start()]))
        if styles and found["style"]:
            shown.append(found[0])
            styled = True
        end = found.end()
    shown.append(_CONTROL.sub(_written_out, text[end:]))
    return "".join([*shown, _RESET] if styled else shown)


def one_line(text: str) -> str:
    """The text on one line, without styles: a newline or a tab in a name is written out, so it makes no row of its own."""
    return printable(text.replace("\r\n", "\n")).replace("\n", "\\n").replace("\t", "\\t")


def overwritten(line: str) -> str:
    """What is left of a line that carriage returns began anew."""
    return next((part for part in reversed(line.split("\r")) if part), "")


def _written_out(found: re.Match[str]) -> str:
    if found[0] == "\r":
        return "\\r"
    return f"\\x{ord(found[0]):02x}"
