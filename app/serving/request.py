"""What a client asks for, after the HTTP layer has checked it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from app.answer.prompt import Prompt
from app.answer.tools import ToolUse
from app.core.adapters import Adapter
from app.core.constraint import ConstraintSpec
from app.core.request import OnBudget, SamplingParams


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One client request: what the answers may be, how they are drawn and when they end."""

    request_id: str
    prompts: Sequence[Prompt]
    """One or more; each gets ``n`` choices. Choice j of prompt i has the index ``i * n + j``."""
    adapter: Adapter | None = None
    """What the model runs with; None: as it is."""
    content: ConstraintSpec | None = None
    """What the content of an answer has to be; None: any text."""
    tools: ToolUse | None = None
    """The functions that an answer may call; None: none."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    max_tokens: int | None = None
    """Tokens an answer may have, end of sequence not counted; None: what the context leaves."""
    min_tokens: int = 0
    """Before so many tokens nothing ends the answer, as far as the constraint can go on."""
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the answer and are not part of its text."""
    ignore_eos: bool = False
    """The model's end of sequence does not end the answer, as far as the constraint can go on."""
    seed: int | None = None
    """Choice j of each prompt draws from seed + j; None draws a fresh seed."""
    on_budget: OnBudget = "finish"
    confidence: bool = False
    """Tell how sure the model was of each value."""
    fields: bool = False
    """Tell each value of a JSON answer as soon as it is whole."""
    prompt_logprobs: int | None = None
    """Tell how likely each token of the prompts was, and so many alternatives."""
    origins: bool = False
    """Tell where each token came from."""
    spans: bool = False
    """Tell where values stand in the prompt whose schema says that they do."""
    choices: Literal["tokens", "exact"] | None = None
    """How values of a finite set are drawn: token by token, or as wholes; None: as the server's
    default has it."""
    leap: bool = True
    draft: bool = True
    prediction: str = ""
    """What the client expects the answers to be, to draft them from; "": nothing was said."""
    timeout: float | None = None
    """Seconds until the last token; None: as long as the server lets any request take."""
