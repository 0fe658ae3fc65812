"""The compiled loops of the CPU, by numba and, where that has no words for it, by LLVM directly.

First ``compiled`` (how they are compiled; half-width floats as integers) and ``llvm``. On them
stand ``attention`` (short spans over the paged cache) and ``sampling`` (a draw from a row of
logits). A decoder layer takes three: ``panels`` (matrix products in bfloat16), ``team`` (threads
that share a pass) and ``jobs`` (what they do: RMSNorm, products, RoPE, attention, SwiGLU).
"""
