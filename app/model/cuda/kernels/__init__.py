"""Triton kernels; imported only if triton is installed."""
