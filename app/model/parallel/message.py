"""A laid-out step as one array of integers, and back.

    header | token ids | positions | drawn rows | slots by group | logits rows | spans | blocks
       5        T           T            T             G x T            R        3 x S   + counts

Source of the layout: what ``StepArrays`` holds, nothing else.
"""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from app.model.inputs import Ints, SpanLayout, StepArrays

_HEADER = 5


def pack(step: StepArrays, drawn: int) -> Ints:
    """The step, and how many tokens the step before has drawn that it may go on from.

    Costs some 20 us for a step of few spans (a copy of what it holds).
    """
    spans = step.spans
    groups = len(step.slots)
    header = (len(step.token_ids), len(step.logits_rows), groups, len(spans), drawn)
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
            *step.slots,
            step.logits_rows,
            np.array(lines, dtype=np.int64).reshape(-1),
            *chain.from_iterable([span.blocks for span in spans]),
        ]
    )


def unpack(message: Ints) -> tuple[StepArrays, int]:
    """What ``pack`` was given; its arrays are parts of ``message``."""
    tokens, rows, groups, spans, drawn = message[:_HEADER].tolist()
    ends = np.cumsum([_HEADER, *[tokens] * (3 + groups), rows, spans * (3 + groups)]).tolist()
    parts = [message[start:end] for start, end in pairwise(ends)]
    lines = parts[-1].reshape(spans, 3 + groups)
    bounds = (np.cumsum(lines[:, 3:].reshape(-1)) + ends[-1]).tolist()
    tables = iter([message[start:end] for start, end in pairwise([ends[-1], *bounds])])
    step = StepArrays(
        token_ids=parts[0],
        positions=parts[1],
        drawn_rows=parts[2],
        slots=tuple(parts[3 : 3 + groups]),
        logits_rows=parts[3 + groups],
        spans=tuple(
            [
                SpanLayout(row, length, start, tuple([next(tables) for _ in range(groups)]))
                for row, length, start in lines[:, :3].tolist()
            ]
        ),
    )
    return step, drawn
