"""A transformers causal LM run as ragged steps over a paged cache, and the sampler.

To be read in this order: ``runner`` (what the engine calls), ``inputs`` (a step laid out flat),
``forward`` and ``layers.attention`` (from there into the model's layers and back out to our
attention), ``kv_storage``, ``sampling``. ``checkpoints`` reads models, ``layers`` replaces parts of
their layers, ``cpu`` and ``cuda`` have the code of each device. ``composition`` runs once, at the
start: it decides whether the model can be served, and compares its logits with transformers'.
"""
