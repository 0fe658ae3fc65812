"""A laid-out step as one array of integers, and back.

    header   lengths of all parts but the last
    tokens   ids, positions, drawn rows, T each; adapters and ancestors, T or nothing; slots, T for
             each cache group
    rows     of logits
    states   the five of ``StateArrays``, or nothing
    spans    row, length and start of each, and its blocks by group
    blocks   of all spans, one after the other

These are the fields of ``StepArrays``, without images.
"""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from app.model.inputs import NO_INTS, STATE_ARRAYS, Ints, SpanLayout, StateArrays, StepArrays

_FIXED = 7 + len(STATE_ARRAYS)
"""Parts that every message has, beside the slots of each cache group."""


def pack(step: StepArrays, drawn: int) -> Ints:
    """Pack a step, and the number of tokens drawn by the previous step that it may use.

    Costs some 20 us for a step of few spans (a copy of what it holds).
    """
    assert step.vision_input is None, "vision models are not shared between ranks"
    states = step.states
    lines = [
        (span.row, span.length, span.start, *[len(blocks) for blocks in span.blocks])
        for span in step.spans
    ]
    parts = [
        step.token_ids,
        step.positions,
        step.drawn_rows,
        NO_INTS if step.adapters is None else step.adapters,
        NO_INTS if step.ancestors is None else step.ancestors,
        step.logits_rows,
        *[NO_INTS if states is None else getattr(states, name) for name in STATE_ARRAYS],
        np.array(lines, dtype=np.int64).reshape(-1),
        *step.slots,
    ]
    header = np.array([drawn, len(step.slots), *map(len, parts)], dtype=np.int64)
    blocks = chain.from_iterable([span.blocks for span in step.spans])
    return np.concatenate([header, *parts, *blocks])


def unpack(message: Ints) -> tuple[StepArrays, int]:
    """The arguments of ``pack``; arrays are views of ``message``."""
    drawn, groups = message[:2].tolist()
    header = 2 + _FIXED + groups
    ends = np.cumsum([header, *message[2:header]]).tolist()
    parts = [message[start:end] for start, end in pairwise(ends)]
    ids, positions, drawn_rows, adapters, ancestors, logits_rows, *rest = parts
    count = len(STATE_ARRAYS)
    states, lines, slots = rest[:count], rest[count], rest[count + 1 :]
    spans = lines.reshape(-1, 3 + groups)
    bounds = (np.cumsum(spans[:, 3:].reshape(-1)) + ends[-1]).tolist()
    tables = iter([message[start:end] for start, end in pairwise([ends[-1], *bounds])])
    step = StepArrays(
        token_ids=ids,
        positions=positions,
        drawn_rows=drawn_rows,
        adapters=adapters if len(adapters) else None,
        ancestors=ancestors if len(ancestors) else None,
        logits_rows=logits_rows,
        states=StateArrays(*states) if len(states[0]) else None,
        slots=tuple(slots),
        spans=tuple(
            [
                SpanLayout(row, length, start, tuple([next(tables) for _ in range(groups)]))
                for row, length, start in spans[:, :3].tolist()
            ]
        ),
    )
    return step, drawn
