"""The forward pass and sampling on CUDA: Triton kernels, captured graphs, masks on the device."""
