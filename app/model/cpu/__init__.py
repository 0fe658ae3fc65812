"""Attention, decoder layers and sampling on the CPU.

``attention``, ``scan`` (of recurrent layers) and ``sampling`` run on every CPU. ``layers`` replaces
decoder layers where the CPU has AVX2: ``mixers`` recognises them, ``workspace`` has their shared
memory. ``packed_linear`` repacks the weights of single linears for torch, and ``trial`` times both
at load. The compiled loops are in ``kernels``.
"""
