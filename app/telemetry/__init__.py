"""Prometheus metrics, JSON logs, OpenTelemetry traces.

To add a metric: a row of the tables in ``metrics``. ``watch`` makes an ``exchange`` of each HTTP
request, which ends as a count, a log line and a span; ``KnownNames`` lists the words of clients
that these may contain. ``traces`` needs the extra ``otel``; ``collector`` opens it if configured.
"""
