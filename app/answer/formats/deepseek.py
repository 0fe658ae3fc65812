"""Calls of DeepSeek V3, R1 and V3.1."""

from __future__ import annotations

from app.answer.formats.spelled import SpelledCalls

DEEPSEEK_V3 = SpelledCalls(
    name="deepseek v3",
    begin="<｜tool▁calls▁begin｜>",
    call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n"
    "```json\n$arguments\n```<｜tool▁call▁end｜>",
    separator="\n",
    end="<｜tool▁calls▁end｜>",
    trigger="<｜tool▁calls▁begin｜>",
)

DEEPSEEK_V3_1 = SpelledCalls(
    name="deepseek v3.1",
    begin="<｜tool▁calls▁begin｜>",
    call="<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
    end="<｜tool▁calls▁end｜>",
    trigger="<｜tool▁calls▁begin｜>",
)


def deepseek(template: str) -> SpelledCalls | None:
    if "<｜tool▁sep｜>" not in template:
        return None
    return DEEPSEEK_V3 if "```json" in template else DEEPSEEK_V3_1
