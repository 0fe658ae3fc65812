"""One model on several devices: a process for each, of which the first has engine and sampling.

    rank 0   HTTP, engine, sampling ── plan, laid out ──┬── forward ── logits, gathered ── draws
    rank 1                             one message ─────┴── forward ── its part of every layer

To be read in this order: ``group`` (exchanges within a layer), ``plan`` and ``shares`` (the part of
each weight that a rank holds, by transformers' own plan, and the wrappers of layers that are cut),
``message`` (a step as one array), ``rank_processes`` (rank 0's side: starts the others,
sends steps, notices their end) and ``rank`` (theirs).
"""
