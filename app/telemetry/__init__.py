"""What the program tells about itself: Prometheus metrics, JSON logs, OpenTelemetry traces.

To add a metric: a row of the tables in ``metrics``. Of one HTTP request ``watch`` makes an
``exchange``, which ends as a count, a log line and a span; ``KnownNames`` says which of the
client's words may stand in them. ``traces`` needs the extra ``otel``; ``collector`` says whether it
is asked for.
"""
