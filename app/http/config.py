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
"""White space of JSON answers: see ``app.constraint.json.whitespace``."""


UnknownFields = Literal["ignore", "refuse"]


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Facts shown to clients, and limits on their requests."""

    served_model: str
    """The model name that requests give."""
    max_model_len: int
    version: str
    chat_format: ChatFormat
    fingerprint: str
    """``system_fingerprint``: changes when the weights or the software do."""
    products: str
    """Name of the matrix product code in use: see ``GET /version``."""
    created: int
    """Time when the model was loaded, in seconds since the epoch."""
    has_adapters: bool = False
    """Whether requests may name adapters, now or once some are loaded."""
    max_body_bytes: int = 4 << 20
    max_nesting: int = 100
    """Maximum depth of arrays and objects in a request body."""
    max_n: int = 16
    max_messages: int = 1024
    images: ImageRules | None = None
    """None: the model takes no images."""
    unknown_fields: UnknownFields = "ignore"
    """Whether to ignore or refuse unsupported fields that would not change the answer."""
    max_tool_calls: int = MOST_CALLS
    """Maximum tool calls of one answer."""
    whitespace: Whitespace = "spaced"
    """Default for requests that do not set it."""
    schema_in_prompt: Literal["auto", "true", "false"] = "auto"
    """Whether prompts show the schema of the answer, if the request does not set it."""
    api_keys: ApiKeys = field(default_factory=ApiKeys)
    """Accepted keys; empty: requests need no key."""
    priority_keys: frozenset[str] = frozenset()
    """Tenants ("key 1") that may ask for the tier priority."""
    metrics_public: bool = False
    """Whether ``/metrics`` needs no key."""
    head_seconds: float = 1.0
    """Maximum seconds that the head of a stream waits for the first token: an early error then has
    a status of its own, and the head and the first event share a packet."""
    ping_seconds: float = 15.0
    """Seconds of silence in a stream until a ping is sent. Proxies time out after 60."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may use the API; ``*`` is every origin."""
    file_bytes: int = 512 << 20
    """Maximum size of an uploaded file."""
    key_bytes: int = 8 << 30
    """Maximum size of all files of an API key, uploads in progress included."""
    key_batches: int = 100
    """Maximum number of unfinished batches of an API key."""
    page: Path | None = None
    """Folder of the page's files and those of ``/docs``; None: there are no pages."""
