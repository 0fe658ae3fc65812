"""The check at start-up that ragged steps over the paged cache give the plain model's logits.

A model gives wrong logits, without an error, if a layer keeps its own state, reads other rows of
the batch, or computes its own positions. So every model is tested before it is served:
a second chunk of a prompt, an extension by five tokens, a decode, and a prompt that starts on
another sequence's blocks, all in one step, against transformers' own eager attention. Where there
are recurrent layers, a step of drafts comes before that: some are accepted, some rejected.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from app.core.cache import StateSlots
from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.device import cpu_multiplies_bfloat16
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.layers.model_call import logits_of_texts, takes_positions

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""Largest relative error of a row of logits; rounding alone stays well below."""

_ROUNDED_CACHE = 0.3
"""Largest relative error from rounding keys and values to 8 bits; unrelated rows: 1.4."""

_log = logging.getLogger(__name__)

TOLERANCE_AT_MOST = 0.5
"""Largest tolerance for models that amplify rounding errors; unrelated rows are 1.4 apart."""


@dataclass(frozen=True, slots=True)
class CheckCase:
    """Four sequences, the steps that compute them, and the rows to compare.

    The first step computes the beginnings of three sequences, the last one all that remains.
    """

    sequences: tuple[tuple[int, ...], ...]
    steps: tuple[Sequence[Span], ...]
    compared: tuple[tuple[int, int], ...]
    """Sequence and position of each row of the last step."""
    blocks: int
    """Blocks of each cache group."""
    states: bool
    """Whether spans read and save states."""


CHECKED_SLOTS = StateSlots(count=10, interval=1)
"""Slots for the states of a case."""


def make_case(
    vocab_size: int,
    block_size: int,
    groups: int = 1,
    *,
    states: bool = False,
    padding: int | None = None,
) -> CheckCase:
    """A case of 34 tokens for a block size of 4, 42 for one of 8, and 58 for one of 16.

    Each of the cache's ``groups`` has block tables of its own. With ``states`` a step of drafts
    (see ``_drafts``) lies between the two, and the last step starts from states saved there. The
    token ``padding``, which some models do not count, is left out.
    """
    size = block_size
    generator = torch.Generator().manual_seed(0)
    drawn: list[int] = torch.randint(0, vocab_size, (2 * size + 26,), generator=generator).tolist()
    drawn = [token if token != padding else (token + 1) % vocab_size for token in drawn]
    chunked, drawn = tuple(drawn[: size + 9]), drawn[size + 9 :]
    extended, drawn = tuple(drawn[: size + 9]), drawn[size + 9 :]
    decoded, shared = tuple(drawn[:4]), extended[:size] + tuple(drawn[4:8])
    sequences = (chunked, extended, decoded, shared)
    computed = (size + 3 if states else size + 1, size + 4, 3, size)

    own = iter(range(64))
    tables: list[tuple[int, ...]] = [
        tuple(next(own) for _ in range(-(-len(sequence) // size))) for sequence in sequences[:3]
    ]
    tables.append((tables[1][0], *(next(own) for _ in range(-(4 // -size)))))
    count = 1 + tables[3][-1]
    by_group = [
        [tuple([(block + group) % count for block in table]) for group in range(groups)]
        for table in tables
    ]
    heads = [
        Span(tokens=sequence[:done], start=0, block_tables=table)
        for sequence, done, table in zip(
            sequences[:3], (size + 1, size + 4, 1 if states else 3), by_group, strict=False
        )
    ]
    tails = [
        Span(tokens=sequence[done:], start=done, block_tables=table)
        for sequence, done, table in zip(sequences, computed, by_group, strict=True)
    ]
    offsets = [(0, len(tails[0].tokens) - 1), *((1, i) for i in range(5)), (2, 0), (3, 3)]
    for number, tail in enumerate(tails):
        tail.rows = [at for span, at in offsets if span == number]
    between = [_drafts(sequences, heads, tails, vocab_size)] if states else []
    return CheckCase(
        sequences=sequences,
        steps=(heads, *between, tails),
        compared=tuple((span, computed[span] + at) for span, at in offsets),
        blocks=count,
        states=states,
    )


def _drafts(
    sequences: Sequence[Sequence[int]], heads: list[Span], tails: list[Span], vocab_size: int
) -> list[Span]:
    """Spans between ``heads`` and ``tails``; also sets the states that all of them read and save.

    The first sequence has two of four drafts rejected: it continues from the state after the other
    two. The second drops three wrong tokens, as by a leap, and continues from the state before
    them. The third has its drafts accepted. The last starts from a checkpoint of the second.
    """
    first, second, third = heads
    size = tails[3].start
    first.saves = [(size + 1, 1)]
    second.saves = [(size, 5), (size + 4, 2)]
    third.saves = [(1, 3)]
    for tail, read, save in zip(tails, (7, 2, 3, 5), (1, 2, 3, 4), strict=True):
        tail.state, tail.saves = read, [(len(tail.tokens), save)]
    taken = sequences[0][size + 1 : size + 3]
    refused = [(token + 1) % vocab_size for token in sequences[0][size + 3 : size + 5]]
    dropped = [(token + 1) % vocab_size for token in sequences[1][size + 4 : size + 7]]
    parts: list[tuple[Span, Sequence[int], int, list[tuple[int, int]]]] = [
        (first, (*taken, *refused), 1, [(1, 6), (2, 7), (4, 1)]),
        (second, dropped, 2, [(3, 9)]),
        (third, sequences[2][1:3], 3, [(1, 8), (2, 3)]),
    ]
    return [
        Span(tokens, len(head.tokens), head.block_tables, state=state, saves=saves)
        for head, tokens, state, saves in parts
    ]


@torch.inference_mode()
def whole_logits(model: PreTrainedModel, case: CheckCase) -> Tensor:
    """Logits of the plain model at the compared rows: [rows, width], float32.

    The sequences are one batch, each in one piece, as quantised weights are dequantised at every
    pass. Leaves the model set to transformers' eager attention, which computes in float32 here.
    """
    model.set_attn_implementation("eager")
    longest = max(map(len, case.sequences))
    # Padded at their ends: later tokens change no row.
    ids = [[*each, *each[-1:] * (longest - len(each))] for each in case.sequences]
    places = sorted({place for _, place in case.compared})
    device = model.device
    slow = model.dtype == torch.bfloat16 and device.type == "cpu" and not cpu_multiplies_bfloat16()
    with (
        _without_advice(),
        _attention_in_float32(model),
        _ProductsInFloat32() if slow else contextlib.nullcontext(),
    ):
        logits = logits_of_texts(
            model, torch.tensor(ids, device=device), None, torch.tensor(places, device=device)
        )
    rows = [logits[owner, places.index(place)] for owner, place in case.compared]
    return torch.stack(rows).float()


@contextlib.contextmanager
def _attention_in_float32(model: PreTrainedModel) -> Iterator[None]:
    """Let the model's own eager attention compute in float32: in bfloat16 it rounds scores in the
    hundreds, where keys have large biases; that changes a row of Qwen 2.5 Coder's logits by 10%."""
    name = "eager_attention_forward"
    modules = {sys.modules[type(each).__module__] for each in model.modules()}
    own = {module: vars(module)[name] for module in modules if name in vars(module)}
    for module, eager in own.items():
        setattr(module, name, partial(_attend_in_float32, eager))
    try:
        yield
    finally:
        for module, eager in own.items():
            setattr(module, name, eager)


def _attend_in_float32(
    eager: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **more: Any
) -> tuple[Tensor, Any]:
    out, weights = eager(module, query.float(), key.float(), value.float(), *args, **more)
    return out.to(query.dtype), weights


class _ProductsInFloat32(TorchFunctionMode):
    """Linear layers in bfloat16 multiply in float32 and round the result: without instructions for
    bfloat16 torch takes three times as long for its own products.

    A weight is widened in parts of 4 MiB, which the allocator uses again: 2.5 times as fast.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [each for each in args if each is not None]
        linear = function is torch.nn.functional.linear and len(given) > 1 and given[1].dim() == 2
        plain = (Tensor, torch.nn.Parameter)
        if linear and all(type(x) in plain and x.dtype == torch.bfloat16 for x in given):
            x, weight, bias = [*args, (kwargs or {}).get("bias")][:3]
            parts = weight.split((1 << 20) // max(weight.shape[1], 1) or 1)
            wide = x.float()
            product = torch.cat([function(wide, part.float()) for part in parts], -1)
            return (product if bias is None else product + bias.float()).bfloat16()
        return function(*args, **kwargs or {})


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Silence transformers' advice to install faster packages: its own functions run in this pass
    only."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)


def check_ragged_step(
    model: PreTrainedModel,
    forward: RaggedForward,
    case: CheckCase,
    block_size: int,
    expected: Tensor,
) -> None:
    """Run ``case`` and compare with ``expected``, the rows of ``whole_logits``.

    The model must be set to the route of ``forward``. Raises ``UnsupportedModel`` if a row differs
    too much.
    """
    logits = _last_logits(forward, case, block_size)
    error = worst_error(logits, expected)
    tolerance = TOLERANCE[model.dtype]
    if not error <= tolerance and model.dtype != torch.float32:
        # Some models amplify rounding errors. Measured between two runs over a used cache, so that
        # a forward pass that reads old entries does not raise its own limit.
        logits = _last_logits(forward, case, block_size)
        with _nudging_embeddings(model):
            noise = worst_error(_last_logits(forward, case, block_size), logits)
        tolerance = min(max(tolerance, 2 * noise), TOLERANCE_AT_MOST)
    if not error <= tolerance:  # so written that NaN fails too
        cause = "" if takes_positions(model) else ": it ignores position_ids"
        raise UnsupportedModel(
            "self-check failed: logits of a ragged step over the paged cache differ from the "
            f"model's own attention (relative error {error:.2g}, limit {tolerance:.2g}), so the "
            f"model is not supported{cause}"
        )


def _last_logits(forward: RaggedForward, case: CheckCase, block_size: int) -> Tensor:
    """Logits of the last step; the steps before it fill the cache."""
    for spans in case.steps:
        logits = forward.run(lay_out(spans, block_size))
    return logits.clone()  # a GPU's next step may write where these are


def check_rounded_cache(
    forward: RaggedForward, case: CheckCase, block_size: int, expected: Tensor
) -> None:
    """Run ``case`` over an 8-bit cache; ``expected`` are the logits without that rounding.

    Raises ``UnsupportedModel`` if a row of logits differs by more than ``_ROUNDED_CACHE``.
    """
    error = worst_error(_last_logits(forward, case, block_size), expected)
    _log.info("the fp8 KV cache changes a row of random logits by %.1f%%", 100 * error)
    if not error <= _ROUNDED_CACHE:  # so written that NaN fails too
        raise UnsupportedModel(
            "self-check failed: an fp8 KV cache changes this model's logits too much (relative "
            f"error {error:.2g}, limit {_ROUNDED_CACHE}); set LEAPJSON_KV_CACHE_DTYPE to auto"
        )


def check_invariance(forward: RaggedForward, case: CheckCase, block_size: int) -> None:
    """Run ``case`` as it is, then token by token, each alone.

    Raises ``UnsupportedModel`` where one of the logits differs in a single bit.
    """
    together = _last_logits(forward, case, block_size)
    alone = list[Tensor]()
    for spans in case.steps:
        for span in spans:
            for offset, own in enumerate(_token_by_token(span)):
                logits = forward.run(lay_out([own], block_size))
                if offset in span.rows:
                    alone.append(logits[0])
    if not torch.equal(together, torch.stack(alone)):
        raise UnsupportedModel(
            "batch_invariant is not supported here: on this device a token's logits depend on "
            "the other tokens of a step"
        )


def _token_by_token(span: Span) -> Iterator[Span]:
    """The tokens of ``span`` as spans of their own; the spare slot holds the state between them."""
    state, wanted = span.state, dict(span.saves)
    keeps = bool(span.state or span.saves)
    for offset, token in enumerate(span.tokens):
        slot = wanted.get(offset + 1, CHECKED_SLOTS.count)
        saves = [(1, slot)] if keeps else []
        yield Span(
            [token], span.start + offset, span.block_tables, state=state, saves=saves, rows=(0,)
        )
        state = slot


def _nudging_embeddings(model: PreTrainedModel) -> AbstractContextManager[Any]:
    """Within the block, embeddings are off by a rounding error of the model's type."""
    half_step = torch.finfo(model.dtype).eps / 2
    generator = torch.Generator().manual_seed(0)

    def nudge(_: Any, __: Any, out: Tensor) -> Tensor:
        noise = torch.randn(out.shape, generator=generator).to(out.device)
        return (out.float() * (1 + half_step * noise)).to(out.dtype)

    return model.get_input_embeddings().register_forward_hook(nudge)


def worst_error(logits: Tensor, expected: Tensor) -> float:
    """Largest of ``row_errors``; NaN where there is one."""
    return float(row_errors(logits, expected).max())


def row_errors(logits: Tensor, expected: Tensor) -> Tensor:
    """Relative error of each row, both centred: a constant added to all logits has no effect."""
    rows, wanted = logits.float(), expected.float()
    rows = rows - rows.mean(-1, keepdim=True)
    wanted = wanted - wanted.mean(-1, keepdim=True)
    errors: Tensor = (rows - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp_min(1e-30)
    return errors


_TREE_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.5, torch.bfloat16: 0.5}
"""Largest relative error of a row of logits. In half precision a mixture of experts may choose
others after a rounding; unrelated rows are 1.4 apart."""
_EXTENSION = 1
"""The case's sequence whose extension is put into a tree."""
_BESIDE = 4
"""Maximum tokens beside the path."""


def follows_trees(
    forward: RaggedForward, case: CheckCase, block_size: int, expected: Tensor
) -> bool:
    """Whether an extension computed as a path of a tree gives the expected logits.

    Models that depend on the order of tokens in a step may pass the check of plain spans, since it
    is that of the positions there. They are served, but without trees, like models without
    attention. ``case`` has just been run, and ``expected`` are its rows.
    """
    span = case.steps[-1][_EXTENSION]
    if not span.block_tables:
        return False
    room = len(span.block_tables[0]) * block_size - span.start - len(span.tokens)
    beside = min(room, _BESIDE)
    tokens, parents = [*span.tokens[:1]] * beside, [-1] * beside
    way: list[int] = []
    for token in span.tokens:
        parents.append(way[-1] if way else -1)
        way.append(len(tokens))
        tokens.append(token)
    tree = Span(tokens, span.start, span.block_tables, rows=way, tree=parents)
    logits = forward.run(lay_out([tree], block_size))
    rows = [row for row, (owner, _) in enumerate(case.compared) if owner == _EXTENSION]
    error = worst_error(logits, expected[rows])
    if error <= _TREE_TOLERANCE[logits.dtype]:  # so written that NaN fails
        return True
    _log.warning(
        "this model does not support tree drafts (relative error %.2g): alternatives are "
        "computed one after another",
        error,
    )
    return False
