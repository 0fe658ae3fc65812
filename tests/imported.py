"""Imports of a server before it loads a model; ``tests.servers`` forks after them."""

from transformers import AutoModelForCausalLM  # noqa: F401

import app.constraint
import app.engine
import app.model.composition
import app.server.serve
import app.text  # noqa: F401
