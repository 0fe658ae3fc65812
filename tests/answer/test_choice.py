"""Bytes and tokens of an answer -> pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.answer.choice import ChoiceReader
from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.pieces import CallStart, Content, End, Piece
from app.answer.plan import AnswerPlan
from app.answer.tools import FunctionTool, ToolUse
from app.core.events import AnswerToken, AnswerUsage, FinishReason, TokenChunk
from app.core.request import GenerationOptions
from app.core.text import RenderedPrompt
from tests.answer.walks import content

CONTENT = AnswerPlan.of(RenderedPrompt([1]), None, None, ChatFormat(HERMES))

USAGE = AnswerUsage(1, 0, 1, 0, 0, 0, 1)


def chunk(data: bytes, reason: FinishReason | None = None) -> TokenChunk:
    """A chunk with a token for each byte."""
    tokens = [AnswerToken(byte, bytes([byte]), "sampled") for byte in data]
    return TokenChunk("r", data, tokens, USAGE, reason)


def test_a_character_split_between_chunks_comes_whole() -> None:
    reader = ChoiceReader(CONTENT, GenerationOptions())
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert content(reader.read([chunk(b"caf" + first)])) == "caf"
    assert content(reader.read([chunk(second)])) == "é"
    assert content(reader.read([chunk(b"", "stop")])) == ""


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    reader = ChoiceReader(CONTENT, GenerationOptions())
    assert content(reader.read([chunk(b"\xf0\x9f")])) == ""
    assert content(reader.read([chunk(b"", "stop")])) == "\ufffd"


def test_no_token_is_lost_behind_bytes_that_are_no_character() -> None:
    format = ChatFormat(HERMES, ReasoningFormat("<think>", "</think>"))
    reader = ChoiceReader(
        AnswerPlan.of(RenderedPrompt([1], "<think>"), None, None, format), GenerationOptions()
    )
    deltas = [
        reader.read([chunk(each)]) for each in (b"h\xff\xe2\x82m</think>\n", b"\n\xff\xe2a", b"bc")
    ]
    pieces = [piece for delta in deltas for piece in delta if isinstance(piece, Content)]
    assert "".join(piece.text for piece in pieces) == "\ufffd\ufffdabc"
    spelled = b"".join(token.data for piece in pieces for token in piece.tokens)
    assert spelled == b"\xff\xe2abc"


@given(st.text(), st.integers(1, 7))
def test_chunks_of_any_size_give_the_same_text(text: str, size: int) -> None:
    reader, data = ChoiceReader(CONTENT, GenerationOptions()), text.encode(errors="ignore")
    deltas = [reader.read([chunk(data[i : i + size])]) for i in range(0, len(data), size)]
    deltas.append(reader.read([chunk(b"", "length")]))
    assert "".join(map(content, deltas)) == data.decode()
    assert deltas[-1][-1] == End("length")


@given(st.text(), st.integers(1, 3), st.integers(1, 7), st.booleans())
def test_chunks_read_together_are_read_as_one_after_the_other(
    text: str, size: int, together: int, reasons: bool
) -> None:
    format = ChatFormat(HERMES, ReasoningFormat("<think>", "</think>"))
    use = ToolUse((FunctionTool("f"),)) if reasons else None
    plan = AnswerPlan.of(RenderedPrompt([1], "<think>" if reasons else ""), None, use, format)
    data = (("hm</think>" if reasons else "") + text).encode(errors="ignore")
    chunks = [chunk(data[i : i + size]) for i in range(0, len(data), size)] + [chunk(b"", "stop")]
    single, joined = (ChoiceReader(plan, GenerationOptions()) for _ in range(2))
    one_by_one = [single.read([each]) for each in chunks]
    starts = range(0, len(chunks), together)
    in_groups = [joined.read(chunks[start : start + together]) for start in starts]

    def told(deltas: list[list[Piece]]) -> tuple[str, bytes, object]:
        pieces = [piece for delta in deltas for piece in delta]
        found = [token for each in pieces if isinstance(each, Content) for token in each.tokens]
        return "".join(map(content, deltas)), b"".join(each.data for each in found), pieces[-1]

    assert told(in_groups) == told(one_by_one)
    assert joined.reasoning_tokens == single.reasoning_tokens


def test_tokens_go_with_the_content_in_which_they_begin() -> None:
    format = ChatFormat(HERMES, ReasoningFormat("<think>", "</think>"))
    use = ToolUse((FunctionTool("f"),))
    plan = AnswerPlan.of(RenderedPrompt([1], "<think>"), None, use, format)
    reader = ChoiceReader(plan, GenerationOptions())
    text = 'hm</think>\n\nHi \u00e9<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    deltas = [reader.read([chunk(bytes([byte]))]) for byte in text.encode()]
    deltas.append(reader.read([chunk(b"", "stop")]))
    pieces = [piece for delta in deltas for piece in delta]
    tokens = [token for piece in pieces if isinstance(piece, Content) for token in piece.tokens]
    assert b"".join(token.data for token in tokens) == "Hi \u00e9".encode()
    assert reader.reasoning_tokens == 2
    (start,) = [piece for piece in pieces if isinstance(piece, CallStart)]
    assert start.id.startswith("call_")
    assert pieces[-1] == End("tool_calls")


def test_a_plan_says_what_the_whole_answer_may_be() -> None:
    format = ChatFormat(HERMES, ReasoningFormat("<think>", "</think>"))
    free = AnswerPlan.of(RenderedPrompt([1], ""), None, None, format)
    assert (free.constraint, free.open_ended, free.thinking_budget(100)) == (None, False, None)
    use = ToolUse((FunctionTool("f"),))
    calls = AnswerPlan.of(RenderedPrompt([1], ""), None, use, format)
    budget = calls.thinking_budget(100)
    assert calls.open_ended
    assert budget is not None
    assert (budget.kept, budget.end, budget.begin) == (25, b"</think>", b"<think>")
    closed = AnswerPlan.of(RenderedPrompt([1]), None, use, format)
    assert closed.thinking_budget(100) is None
