"""The synchronous engine loop: scheduling, leaps, drafts, and the state of answers.

No torch, no event loop: a runner, a vocabulary, a tokenizer and constraints enter as Protocols.
"""

from app.engine.config import EngineConfig
from app.engine.engine import Engine

__all__ = ["Engine", "EngineConfig"]
