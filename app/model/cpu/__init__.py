"""The forward pass on a CPU with AVX512-BF16: own loops, on threads that stay awake for it."""
