"""Real clients against a running server, each in a separate environment: ``make clients``.

``run.py`` starts servers of the demo model and of demo-vision, sets up the environments, runs
the clients' scripts on both and writes docs/clients.md. Each folder below is a client: its pinned
packages, and a script that prints a line of JSON for each check. The scripts run in their own
environments, which is why mypy leaves those folders out.
"""
