"""Settings and facts of this server that the HTTP layer needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from app.answer.formats import ChatFormat
from app.answer.tools import MOST_CALLS
from app.http.keys import ApiKeys
from app.http.requests.messages import ImageRules

Whitespace = Annotated[str, Field(pattern=r"^(spaced|compact|flexible|indent:([0-9]|1[0-6]))$")]
"""Where white space stands in answers that are JSON: see ``app.constraint.json.whitespace``."""


UnknownFields = Literal["ignore", "refuse"]


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Facts shown to clients, and bounds on what they send."""

    served_model: str
    """The model name that requests give."""
    max_model_len: int
    version: str
    chat_format: ChatFormat
    fingerprint: str
    """``system_fingerprint``: changes when the weights or the software do."""
    products: str
    """See ``GET /version``."""
    created: int
    """When the model was loaded, in seconds since the epoch."""
    has_adapters: bool = False
    """Whether requests may name adapters, now or once some are loaded."""
    max_body_bytes: int = 4 << 20
    max_nesting: int = 100
    """Depth of arrays and objects in a request body."""
    max_n: int = 16
    max_messages: int = 1024
    images: ImageRules | None = None
    """None: the model takes no images."""
    unknown_fields: UnknownFields = "ignore"
    """What is done about fields of requests that are not acted on and change no answer."""
    max_tool_calls: int = MOST_CALLS
    """Calls of one answer."""
    whitespace: Whitespace = "spaced"
    """Of answers where the request sets none."""
    schema_in_prompt: Literal["auto", "true", "false"] = "auto"
    """Whether prompts show the schema of an answer, where the request does not set it."""
    api_keys: ApiKeys = field(default_factory=ApiKeys)
    """Those that requests need one of; none: requests need no key."""
    priority_keys: frozenset[str] = frozenset()
    """Tenants ("key 1") that may ask for the tier priority."""
    metrics_public: bool = False
    """Whether ``/metrics`` needs no key."""
    head_seconds: float = 1.0
    """How long the head of a stream waits for the first token: an error that comes as soon has a
    status of its own, and a head that the first event follows at once is one packet."""
    ping_seconds: float = 15.0
    """Of silence in a stream, after which a ping is sent. Proxies give up after 60."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may ask from a browser; ``*`` is every origin."""
    file_bytes: int = 512 << 20
    """Of an uploaded file."""
    key_bytes: int = 8 << 30
    """Of all files of an API key, those that are being uploaded included."""
    key_batches: int = 100
    """Batches of an API key that have not ended."""
    page: Path | None = None
    """Folder of the page's files and those of ``/docs``; None: there are no pages."""
