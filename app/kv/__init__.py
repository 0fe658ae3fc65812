"""The cache's bookkeeping, as integers: which block is whose, and which prefix it holds."""
