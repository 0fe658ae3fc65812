"""The checks of the openai package, with the one that the tests have: ``make clients`` has more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from loadtest.server import running_server
from tests.clients.catalogue import CLIENTS
from tests.clients.environments import variables
from tests.clients.run import MODEL, SETTINGS


def test_every_check_of_the_openai_package_passes(tmp_path: Path) -> None:
    client = CLIENTS[0]
    with running_server(None, tmp_path / "log", SETTINGS) as server:
        done = subprocess.run(
            [sys.executable, str(client.path / "client.py")],
            env=variables(f"{server.url}/v1", MODEL, None),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) > 50
    assert [outcome for outcome in outcomes if not outcome["ok"]] == []
