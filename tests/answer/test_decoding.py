"""Decoding of bytes to text, and byte offsets of characters."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from app.answer.incoming import Utf8Decoder


@given(st.lists(st.binary(max_size=5)), st.data())
@example([b"a\xe2\x82", b"\xffb"], None)
def test_places_are_those_of_the_bytes(parts: list[bytes], data: st.DataObject | None) -> None:
    whole, decoder = b"".join(parts), Utf8Decoder()
    text = "".join(map(decoder.decode, parts)) + decoder.decode(b"", last=True)
    assert text == whole.decode(errors="replace")
    assert Utf8Decoder().decode(whole, last=True) == text
    places = [*range(len(text) + 1)]
    if data is not None:
        places = sorted(data.draw(st.sets(st.sampled_from(places))))
    found = [decoder.bytes_before(place) for place in places]
    ends = [at for at in range(len(whole) + 1) if _is_between(whole, at)]
    assert found == [ends[place] for place in places]


def _is_between(data: bytes, at: int) -> bool:
    """Whether no character has bytes on both sides."""
    parts = [data[:at], data[at:]]
    return "".join(part.decode(errors="replace") for part in parts) == data.decode(errors="replace")
