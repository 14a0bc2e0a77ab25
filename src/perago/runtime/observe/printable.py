"""Texts that others have written, made fit for a reader's terminal: what bodies print, reasons, names of objects and steps.

    in the text                                           shown
    newline, tab                                          as they are; \\n and \\t where all has to be `one_line`
    a colour or another style (CSI … m)                   as it is where `styles` are wanted, ended with the text; else gone
    other whole sequences: cursor, screen, title, link    gone
    any other control character                           written out: \\x1b, \\x9b, \\r

The rule: nothing that is left moves a cursor, clears, renames, answers or beeps; so no text hides what stands before it.
What a progress bar has drawn again and again is one line (`overwritten`): as a terminal would leave it.
"""

from __future__ import annotations

import re

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
