from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.text import IncrementalDecoder


def test_a_character_split_between_chunks_comes_whole() -> None:
    decoder = IncrementalDecoder()
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert decoder.push(b"caf" + first) == "caf"
    assert decoder.push(second) == "é"
    assert decoder.finish() == ""


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    decoder = IncrementalDecoder()
    assert decoder.push(b"\xf0\x9f") == ""
    assert decoder.finish() == "�"


@given(st.text(), st.integers(1, 7))
def test_chunks_of_any_size_give_the_same_text(text: str, size: int) -> None:
    decoder, data = IncrementalDecoder(), text.encode(errors="ignore")
    pieces = [decoder.push(data[i : i + size]) for i in range(0, len(data), size)]
    assert "".join(pieces) + decoder.finish() == data.decode()
