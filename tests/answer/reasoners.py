"""Minimal chat templates of reasoning models, with the marks of the real ones."""

from __future__ import annotations

import re

_TEMPLATE = """\
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- '%start' }}
{%- if m.%name %}{{- '%begin' + m.%name + '%end' }}{% endif %}
{{- '%says' + m.content + '%said' }}
{%- else %}{{- '<|' + m.role + '|>' + m.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '%prompt' }}{% endif %}"""


def _template(
    begin: str,
    end: str,
    *,
    start: str = "<|bot|>",
    prompt: str | None = None,
    says: str = "",
    said: str = "",
    name: str = "reasoning_content",
) -> str:
    """A template with these marks; ``prompt`` is ``start`` by default."""
    parts = {"start": start, "prompt": start if prompt is None else prompt, "name": name}
    parts |= {"begin": begin, "end": end, "says": says, "said": said}
    return re.sub(r"%([a-z]+)", lambda part: parts[part[1]], _TEMPLATE)


HARMONY = """\
{{- 'Reasoning: ' + (reasoning_effort if reasoning_effort is defined else 'medium') }}
{%- if tools %}{{ tools[0].function.name }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- if m.tool_calls and m.content and m.thinking %}{{ raise_exception('not both') }}{% endif %}
{%- if m.thinking %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
{%- endif %}
{%- if m.tool_calls %}
{{- '<|start|>assistant to=' + 'functions.' + m.tool_calls[0].function.name }}
{{- '<|channel|>commentary json<|message|>' + m.tool_calls[0].function.arguments|tojson }}
{{- '<|call|>' }}
{%- else %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- elif m.role == 'tool' %}
{{- '<|start|>functions.f to=assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}
{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

REASONERS = {
    "think": _template("<think>\\n", "\\n</think>\\n\\n"),
    "think, opened": _template("<think>\\n", "\\n</think>\\n", prompt="<|bot|><think>\\n"),
    "glm": "{#{{ '\\n<think>' + #}" + _template("\\n<think>", "</think>\\n"),
    "mistral": _template("[THINK]", "[/THINK]"),
    "gpt-oss": HARMONY,
    "gemma": _template("<|channel>thought\\n", "\\n<channel|>", name="reasoning"),
    "seed": _template("<seed:think>", "</seed:think>\\n"),
    "minimax m3": _template("<mm:think>", "</mm:think>"),
    "hunyuan": "{% set HYTK = ':open' %}" + _template("<think:open>", "</think:open>"),
    "command r7b": _template(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        says="<|START_RESPONSE|>",
        said="<|END_RESPONSE|>",
        name="thinking",
    ),
    "command": _template(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        prompt="<|bot|><|START_THINKING|>",
        says="<|START_TEXT|>",
        said="<|END_TEXT|>",
    ),
    "apertus": _template("<|inner_prefix|>", "<|inner_suffix|>"),
    "kimi k3": "{#open_tag('think') open_tag('response')#}"
    + _template(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        prompt="<|bot|><|open|>think<|sep|>",
        says="<|open|>response<|sep|>",
        said="<|close|>response<|sep|>",
    ),
    "solar": "{#<|begin|>assistant<|think|> <|begin|>assistant<|content|>#}"
    + _template(
        "<|think|>",
        "<|end|><|begin|>assistant",
        start="<|begin|>assistant",
        says="<|content|>",
        name="reasoning",
    ),
    "muse": "{#assistant to=self<|message|>#}"
    + _template(
        " to=self<|message|>",
        "<|eom|><|start|>assistant",
        start="<|start|>assistant",
        says=" to=user<|message|>",
    ),
    "apriel": _template(
        "Here are my reasoning steps:\\n",
        "\\n[BEGIN FINAL RESPONSE]\\n",
        prompt="<|bot|>Here are my reasoning steps:\\n",
    ),
    "granite 3.2": _template("Here is my thought process: ", " Here is my response:"),
    "granite 3.3": "{#<response></response>#}"
    + _template("<think>", "</think>\\n<response>", said="</response>"),
}
"""Templates by family; ``detect`` reads their comments as it reads the macros of real ones."""
