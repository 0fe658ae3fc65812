"""Real clients against a running server, each in an environment of its own: ``make clients``.

``run.py`` starts the server on the demo model, sets up the environments, runs the clients'
scripts and writes docs/clients.md. Each folder below is a client: its pinned packages, and a script
that prints a line of JSON for each check. The scripts run in their own environments, which is why
mypy leaves those folders out.
"""
