"""Runs the checks of the openai package, in the installed version; others: ``make clients``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.clients.catalogue import CLIENTS
from tests.clients.environments import variables
from tests.clients.run import MODEL, PICTURE, SETTINGS, VISION_MODEL, VISION_SETTINGS
from tests.servers import running_server


def test_every_check_of_the_openai_package_passes(tmp_path: Path) -> None:
    settings = {**SETTINGS, "DATA": str(tmp_path / "data")}
    with running_server(None, tmp_path / "log", settings) as server:
        outcomes = _checks(variables(f"{server.url}/v1", MODEL, None))
    assert len(outcomes) > 50
    assert [outcome for outcome in outcomes if not outcome["ok"]] == []


def test_the_openai_package_sends_pictures(tmp_path: Path) -> None:
    with running_server(None, tmp_path / "log", VISION_SETTINGS) as server:
        outcomes = _checks(variables(f"{server.url}/v1", VISION_MODEL, None, picture=PICTURE))
    assert {outcome["feature"] for outcome in outcomes} == {"images"}
    assert [outcome for outcome in outcomes if not outcome["ok"]] == []


def _checks(environment: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(CLIENTS[0].path / "client.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
