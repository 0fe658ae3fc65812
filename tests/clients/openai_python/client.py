"""The openai package: chat completions, completions, responses, batches, models, and errors."""

from __future__ import annotations

import importlib

from shared import check

for module in ("chat", "tools", "custom", "extras", "responses", "images", "batches", "errors"):
    importlib.import_module(f"{module}_checks")  # the import registers its checks
check.run()
