"""What Triton compiles for the device."""
