"""What can be said of a request before it waits for its turn."""

from __future__ import annotations

from app.core.errors import InvalidRequest, PromptTooLong
from app.core.request import EngineRequest


def check_request(request: EngineRequest, room: int, most_whole: int) -> None:
    """``room``: tokens that prompt and answer may have together; ``most_whole``: those that are
    computed in one step.

    Raises PromptTooLong where prompt and ``max_tokens`` do not fit, InvalidRequest for an empty
    prompt, a budget below 1, an empty stop string, or an image that fits in no step.
    """
    if not request.prompt:
        raise InvalidRequest("the prompt is empty", role="prompt")
    if request.max_tokens < 1:
        raise InvalidRequest("max_tokens must be at least 1", role="max_tokens")
    if not all(request.options.stop):
        raise InvalidRequest("a stop string is empty", param="stop")
    prompt_tokens = len(request.prompt)
    if prompt_tokens >= room:
        raise PromptTooLong(prompt_tokens=prompt_tokens, room=room)
    if prompt_tokens + request.max_tokens > room:
        raise PromptTooLong(prompt_tokens=prompt_tokens, room=room, max_tokens=request.max_tokens)
    longest = 0 if request.images is None else request.images.longest_whole
    if longest > most_whole:
        raise InvalidRequest(
            f"an image of {longest} tokens has to be computed in one step, and there is room "
            f"for {most_whole}: max_batch_tokens less max_running",
            role="prompt",
        )
