"""The clients, and the features in the columns of the table."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Client:
    """A client in the version that its requirements pin."""

    name: str
    title: str
    runtime: Literal["python", "node"]
    folder: str
    """Subfolder with ``client.py`` or ``client.mjs`` and its packages."""
    requirements: str = "requirements.txt"

    @property
    def path(self) -> Path:
        return HERE / self.folder

    def versions(self) -> dict[str, str]:
        """Versions of the pinned packages by name, without the Node runtime."""
        if self.runtime == "node":
            package = json.loads((self.path / "package.json").read_text())
            return dict(package["dependencies"])
        lines = (self.path / self.requirements).read_text().splitlines()
        pins = [re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+)", line) for line in lines]
        return {pin[1]: pin[2] for pin in pins if pin}


CLIENTS = (
    Client("openai-3", "openai for Python, 3.x", "python", "openai_python", "requirements-3.txt"),
    Client("openai-2", "openai for Python, 2.x", "python", "openai_python", "requirements-2.txt"),
    Client("openai-node", "openai for Node, with Zod", "node", "openai_node"),
    Client("vercel-ai", "Vercel's ai", "node", "vercel_ai"),
    Client("anthropic", "anthropic for Python", "python", "anthropic_python"),
    Client("anthropic-node", "anthropic for Node", "node", "anthropic_node"),
    Client("instructor", "instructor", "python", "instructor_client"),
    Client("langchain", "langchain-openai", "python", "langchain_client"),
    Client("pydantic-ai", "pydantic-ai", "python", "pydantic_ai_client"),
    Client("litellm", "litellm", "python", "litellm_client"),
    Client("llama-index", "llama-index openai-like", "python", "llama_index_client"),
    Client("openai-agents", "openai-agents", "python", "openai_agents_client"),
    Client("outlines", "outlines: OpenAI and vLLM", "python", "outlines_client"),
    Client("agent-framework", "Agent Framework", "python", "agent_framework_client"),
    Client("openai-agents-node", "@openai/agents", "node", "openai_agents_node"),
    Client("mastra", "Mastra", "node", "mastra"),
    Client("vercel-ai-5", "Vercel's ai, 5 and 6", "node", "vercel_ai_older"),
    Client("claude-code", "Claude Code", "node", "claude_code"),
    Client("codex", "Codex", "node", "codex"),
)

FEATURES = (
    "text",
    "json_object",
    "json_schema",
    "stream",
    "tools",
    "several calls",
    "tools streamed",
    "tool loop",
    "constraints",
    "completions",
    "responses",
    "responses streamed",
    "responses tools",
    "messages",
    "messages streamed",
    "messages tools",
    "images",
    "batches",
    "models",
    "errors",
)
"""Features that a check can belong to."""
