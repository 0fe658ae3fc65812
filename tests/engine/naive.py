"""The oracle: one sequence at a time, all tokens read at every step, no cache and no drafts."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from app.core.request import EngineRequest
from app.core.step import SampleRow
from app.engine.leap import Leaper, Tokenizer
from tests.fakes import ByteVocabulary, ScriptedModel, draw


@dataclass(frozen=True, slots=True)
class NaiveAnswer:
    tokens: list[int]
    """Tokens of the answer as they stand at its end."""
    text: bytes
    finish_reason: str


def naive_answer(
    request: EngineRequest,
    model: ScriptedModel,
    vocabulary: ByteVocabulary,
    tokenizer: Tokenizer,
    *,
    leap: bool = True,
) -> NaiveAnswer:
    """What plain constrained decoding gives, with the leap's tokens forced where ``leap``."""
    leaper = Leaper(vocabulary, tokenizer)
    state = request.constraint.start() if request.constraint is not None else None
    finish = request.on_budget == "finish"
    tokens: list[int] = []
    text = b""
    leapt = False
    while True:
        if any(stop in text for stop in request.stop):
            return NaiveAnswer(tokens, _cut(text, request.stop), "stop")
        if state is not None and state.is_final:
            return NaiveAnswer(tokens, text, "stop")
        if len(tokens) == request.max_tokens:
            complete = state is not None and state.is_complete
            return NaiveAnswer(tokens, text, "stop" if complete else "length")
        jump = None
        if leap and request.leap and state is not None and not leapt:
            known = [*request.prompt, *tokens]
            jump = leaper.propose(
                known, len(request.prompt), state, request.max_tokens, finish=finish
            )
        if jump is not None and jump.tokens:
            tokens = [*tokens[: len(tokens) - jump.dropped], *jump.tokens]
            text += b"".join(jump.added)
            state = jump.state
            leapt = True
            continue
        leapt = False
        mask = None
        if state is not None:
            left = request.max_tokens - len(tokens)
            mask = state.mask(budget=left) if finish else state.mask()
        row = SampleRow(
            0,
            0,
            request.sampling,
            random_key(request.seed, text),
            history=(*request.prompt, *tokens),
            answer_start=len(request.prompt),
        )
        token = draw(model.logits([*request.prompt, *tokens]), row, mask).token_id
        if token == vocabulary.eos:
            return NaiveAnswer(tokens, text, "stop")
        if state is not None:
            state.accept(token)
        tokens.append(token)
        text += vocabulary.spell([token])


def random_key(seed: int, text: bytes) -> int:
    data = (seed & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little") + text
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _cut(text: bytes, stops: object) -> bytes:
    """Read byte by byte until a stop string has appeared."""
    assert isinstance(stops, tuple)
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    raise AssertionError("no stop string in the text")
