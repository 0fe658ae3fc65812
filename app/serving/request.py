"""What a client asks for, after the HTTP layer has checked it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.answer.prompt import Prompt
from app.answer.tools import ToolUse
from app.core.adapters import Adapter
from app.core.constraint import ConstraintSpec
from app.core.request import GenerationOptions


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One client request: prompts, what the answers may be, and options."""

    request_id: str
    prompts: Sequence[Prompt]
    """One or more; each gets ``n`` choices: choice j of prompt i is number ``i * n + j``."""
    adapter: Adapter | None = None
    """What the model runs with; None: as it is."""
    content: ConstraintSpec | None = None
    """What the content of an answer has to be; None: any text."""
    tools: ToolUse | None = None
    """The functions that an answer may call; None: none."""
    options: GenerationOptions = field(default_factory=GenerationOptions)
