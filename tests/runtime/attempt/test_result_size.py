"""What no orchestrator would take is refused while nothing is published yet, and named."""

from __future__ import annotations

from typing import Any

import pytest

from perago.errors import TaskResultError
from perago.runtime.attempt.contract import check_size


@pytest.mark.parametrize(
    ("result", "named"),
    [
        ({"said": "a\0b"}, "result.said holds"),
        ({"deep": {"list": ["fine", {"x": "\0"}]}}, "result.deep.list[1].x holds"),
        ({"deep": {"a\0": 1}}, r"the key 'a\x00' of result.deep holds"),
    ],
)
def test_a_nul_is_refused_wherever_it_is(result: dict[str, Any], named: str) -> None:
    with pytest.raises(TaskResultError) as raised:
        check_size(result, None)
    assert str(raised.value).startswith(f"{named} U+0000")
    assert "\0" not in str(raised.value)


def test_every_other_character_of_unicode_is_fine() -> None:
    text = "".join(map(chr, range(1, 0x20))) + "\x7f\x80\u2028\ufeff\ufffe\uffff\U0010ffff"
    check_size({"text": text, text: [text, 1, None, 2.5, True]}, None)
