"""A laid-out step as one array of integers, and back.

    header | token ids | positions | drawn rows | adapters | slots by group | rows | spans | blocks
       6        T           T            T        T or none      G x T        R     (3 + G) x S

Source of the layout: what ``StepArrays`` holds, nothing else.
"""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from app.model.inputs import Ints, SpanLayout, StepArrays

_HEADER = 6
_NONE: Ints = np.empty(0, dtype=np.int64)


def pack(step: StepArrays, drawn: int) -> Ints:
    """The step, and how many tokens the step before has drawn that it may go on from.

    Costs some 20 us for a step of few spans (a copy of what it holds).
    """
    spans = step.spans
    groups = len(step.slots)
    adapters = _NONE if step.adapters is None else step.adapters
    header = (len(step.token_ids), len(adapters), groups, len(step.logits_rows), len(spans), drawn)
    lines = [
        (span.row, span.length, span.start, *[len(blocks) for blocks in span.blocks])
        for span in spans
    ]
    return np.concatenate(
        [
            np.array(header, dtype=np.int64),
            step.token_ids,
            step.positions,
            step.drawn_rows,
            adapters,
            *step.slots,
            step.logits_rows,
            np.array(lines, dtype=np.int64).reshape(-1),
            *chain.from_iterable([span.blocks for span in spans]),
        ]
    )


def unpack(message: Ints) -> tuple[StepArrays, int]:
    """What ``pack`` was given; its arrays are parts of ``message``."""
    tokens, adapters, groups, rows, spans, drawn = message[:_HEADER].tolist()
    lengths = [tokens] * 3 + [adapters] + [tokens] * groups + [rows, spans * (3 + groups)]
    ends = np.cumsum([_HEADER, *lengths]).tolist()
    parts = [message[start:end] for start, end in pairwise(ends)]
    lines = parts[-1].reshape(spans, 3 + groups)
    bounds = (np.cumsum(lines[:, 3:].reshape(-1)) + ends[-1]).tolist()
    tables = iter([message[start:end] for start, end in pairwise([ends[-1], *bounds])])
    step = StepArrays(
        token_ids=parts[0],
        positions=parts[1],
        drawn_rows=parts[2],
        adapters=parts[3] if adapters else None,
        slots=tuple(parts[4 : 4 + groups]),
        logits_rows=parts[4 + groups],
        spans=tuple(
            [
                SpanLayout(row, length, start, tuple([next(tables) for _ in range(groups)]))
                for row, length, start in lines[:, :3].tolist()
            ]
        ),
    )
    return step, drawn
