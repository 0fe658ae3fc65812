"""The compiled loops: numba where it suffices, LLVM's instructions where it does not."""
