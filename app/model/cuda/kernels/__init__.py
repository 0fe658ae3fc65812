"""What Triton compiles for the device; imported only where triton is installed."""
