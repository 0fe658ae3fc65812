"""The compiled loops of the CPU, by numba and, for what it cannot express, by LLVM directly.

First ``compiled`` (how they are compiled; half-width floats as integers), ``llvm`` and, on it,
``vectors``. On them stand ``attention`` (over the paged cache; ``groups`` of positions, and
``tiles`` of rows and keys whose sums have one order), ``sampling`` (a draw from a row of logits),
and ``scans`` (recurrent layers along their sequences). A decoder layer takes three: products by
panels (``panels`` in bfloat16; ``quantized_panels``, ``rounded_rows`` and ``quantized_products``
with weights of 8 and 4 bits; ``amx`` for both), ``team`` (threads that share a pass) and ``jobs``
(RMSNorm, products, RoPE, attention, SwiGLU; ``delta_layer`` for the gated delta rule).
"""
