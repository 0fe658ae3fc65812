"""The cache's bookkeeping, as integers: which block is whose, and which prefix it holds.

To be read in this order: ``pool`` (blocks of one group of layers), ``prefix``, ``table`` (those of
one sequence), ``manager``.
"""
