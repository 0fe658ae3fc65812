"""What the HTTP layer is told about this server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Facts shown to clients, and bounds on what they send."""

    served_model: str
    """The model name that requests give."""
    max_model_len: int
    version: str
    fingerprint: str
    """``system_fingerprint``: changes when the weights or the software do."""
    created: int
    """When the model was loaded, in seconds since the epoch."""
    max_body_bytes: int = 4 << 20
    max_nesting: int = 100
    """Depth of arrays and objects in a request body."""
    max_n: int = 16
    max_messages: int = 1024
