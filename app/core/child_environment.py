"""The environment of processes that this one starts."""

from __future__ import annotations

import os
import sys

_SECRETS = ("LEAPJSON_API_KEYS", "LEAPJSON_STORE", "LEAPJSON_SCHEMA_STORE", "AWS_")
"""Prefixes of variables with secrets: API keys, database passwords, keys of a bucket."""


def child_environment() -> dict[str, str]:
    """This process's environment without secrets, and its module path."""
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(_SECRETS)}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
