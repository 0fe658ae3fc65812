"""A transformers causal LM run as ragged steps over a paged cache, and the sampler.

To be read in this order: ``runner`` (what the engine calls, and how it is put together),
``inputs`` (a step laid out flat), ``forward`` and ``attention`` (from there into the model's
layers and back out to our attention), ``kv_storage``, ``sampling``. ``cpu`` and ``cuda`` hold what
differs by device. ``loading``, ``architecture`` and ``self_check`` run once, at the start: which
models can be served, and whether this one gives the same logits as in transformers.
"""
