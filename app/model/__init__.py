"""A transformers causal LM run as ragged steps over a paged cache, and the sampler.

To be read in this order: ``runner`` (what the engine calls), ``inputs`` (a step laid out flat),
``forward`` and ``layers.attention`` (from there into the model's layers and back out to our
attention), ``kv_storage``, ``sampling``. ``checkpoints`` reads models, ``layers`` holds what is
ours in them, ``cpu`` and ``cuda`` what differs by device. ``composition`` runs once, at the start:
which models can be served, and whether this one gives the same logits as in transformers.
"""
