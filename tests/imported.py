"""Imports and kernels of a server before it loads a model; ``tests.servers`` forks after them."""

from transformers import AutoModelForCausalLM  # noqa: F401

import app.engine
import app.model.composition
import app.server.serve
import app.text  # noqa: F401
from app.constraint import Compiler
from app.model.cpu.kernels import jobs
from tests.fakes import ByteVocabulary

Compiler(ByteVocabulary())
jobs.entry()
