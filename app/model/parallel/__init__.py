"""One model on several devices: a process for each, of which the first has engine and sampling.

    rank 0   HTTP, engine, sampling ── plan, laid out ──┬── forward ── logits, gathered ── draws
    rank 1                             one message ─────┴── forward ── its part of every layer

To be read in this order: ``group`` (what the processes tell each other inside a layer), ``plan``
and ``shares`` (who holds which part of which weight, by transformers' own plan, and what is put
around the layers that are cut), ``message`` (a step as one array), ``steps``,
``rank_processes`` (rank 0's side: starts the others, sends steps, notices their end) and ``rank``
(theirs).
"""
