"""Attention, decoder layers and sampling on the CPU.

``attention``, ``scan`` (of recurrent layers) and ``sampling`` run on every CPU. ``layers`` replaces
decoder layers where the CPU has AVX2: ``mixers`` says which, ``workspace`` is
what they share. ``packed_linear`` lays out the weights of single linears where torch multiplies,
and ``trial`` times both at load. The loops they call, compiled, are in ``kernels``.
"""
