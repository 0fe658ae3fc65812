"""What the program tells about itself: Prometheus metrics and JSON logs."""
