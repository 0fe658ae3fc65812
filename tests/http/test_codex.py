"""Requests as the Codex command line sends them to ``/v1/responses``.

Sources: ``ResponsesApiRequest`` in openai/codex (codex-rs/codex-api/src/common.rs), the twelve
fields of a recorded request (webai-at-home 214), and the types of tools and items in issues of
other servers (vllm 42475, ik_llama.cpp 1964, ROCm/ATOM 2178).
"""

from __future__ import annotations

from typing import Any

import pytest

from app.core.errors import InvalidRequest
from app.http.requests.wire import HEADER, Ignored
from app.http.responses.parse import ConversationFields, _tool_use, read_conversation
from tests.http.harness import CONFIG, RESPONSES, client_of, post, writing
from tests.http.responses import CITY, REASONER, WITH_TOOLS, events_of, response_of

COMMAND = '{"cmd": "ls -la"}'
CALL = f'<tool_call>\n{{"name": "exec_command", "arguments": {COMMAND}}}\n</tool_call>'
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "exec_command",
        "description": "Run a command.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"cmd": {"type": "string"}, "yield_time_ms": {"type": "number"}},
            "required": ["cmd"],
            "additionalProperties": False,
        },
    },
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edit files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /[a-z]+/"},
    },
    {"type": "web_search", "external_web_access": False},
    {"type": "local_shell"},
    {"type": "image_generation", "output_format": "png"},
    {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
    {
        "type": "namespace",
        "name": "mcp__files__",
        "description": "Files.",
        "tools": [{"type": "function", "name": "read", "strict": False, "parameters": CITY}],
    },
]
ASKED: dict[str, Any] = {
    "model": "demo",
    "instructions": "You are a coding agent.",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "<permissions instructions>"}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "<environment_context>"},
                {"type": "input_text", "text": "List the files"},
            ],
        },
    ],
    "tools": TOOLS,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199c0de-0000-7000-8000-000000000000",
    "client_metadata": {"x-codex-installation-id": "a"},
    "text": {"verbosity": "low"},
}
LATER: list[dict[str, Any]] = [
    {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
    {"type": "function_call", "name": "exec_command", "arguments": COMMAND, "call_id": "call_1"},
    {"type": "function_call_output", "call_id": "call_1", "output": "README.md"},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "abc"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Success"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done."}],
        "phase": "final_answer",
    },
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
]
LEFT_OUT = (
    "text.verbosity, tools[].type=web_search, tools[].type=local_shell, "
    "tools[].type=image_generation, tools[].type=tool_search"
)
READ = '<tool_call>\n{"name": "mcp__files__read", "arguments": {"city": "Ulm"}}\n</tool_call>'


async def test_a_codex_request_gets_a_call_and_ignored_fields_are_named() -> None:
    events = await events_of(writing(CALL, WITH_TOOLS), **ASKED)
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["name"], item["arguments"]) == (
        "function_call",
        "exec_command",
        COMMAND,
    )
    assert [tool["name"] for tool in events[0]["response"]["tools"]] == [
        "exec_command",
        "apply_patch",
        "mcp__files__",
    ]
    answer = await post(writing(CALL, WITH_TOOLS), RESPONSES, {**ASKED, "stream": True})
    assert answer.headers[HEADER] == LEFT_OUT


@pytest.mark.parametrize("format", [WITH_TOOLS, REASONER], ids=["tools", "think"])
async def test_a_later_turn_and_an_output_schema_are_taken(format: Any) -> None:
    text = {
        "verbosity": "low",
        "format": {
            "type": "json_schema",
            "name": "codex_output_schema",
            "strict": True,
            "schema": CITY,
        },
    }
    asked = {**ASKED, "input": [ASKED["input"][1], *LATER], "text": text, "tools": TOOLS[:2]}
    bench = writing('{"city": "Oslo"}', format)
    events = await events_of(bench, **asked)
    assert events[-1]["response"]["status"] == "completed"
    last = bench.tokenizer.seen[-1][-1]
    assert (last["role"], last["content"]) == ("user", "And now?")


async def test_the_tools_of_a_namespace_are_offered_and_called_by_both_names() -> None:
    bench = writing(READ, WITH_TOOLS)
    asked = {**ASKED, "tool_choice": "required", "tools": TOOLS[-1:]}
    events = await events_of(bench, **asked)
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["namespace"], item["name"]) == (
        "function_call",
        "mcp__files__",
        "read",
    )
    assert item["arguments"] == '{"city": "Ulm"}'
    (shown,) = bench.tokenizer.tools[-1] or ()
    assert shown["function"]["name"] == "mcp__files__read"


async def test_an_earlier_call_of_a_namespace_is_one_of_the_same_tool() -> None:
    call = {
        **{"type": "function_call", "call_id": "c1", "namespace": "mcp__wx", "name": "get"},
        "arguments": "{}",
    }
    output = {"type": "function_call_output", "call_id": "c1", "output": "Rain"}
    wx = {"type": "namespace", "name": "mcp__wx", "tools": [{"type": "function", "name": "get"}]}
    bench = writing("ok", WITH_TOOLS)
    await events_of(bench, input=[call, output], tools=[wx])
    (called,) = bench.tokenizer.seen[-1][0]["tool_calls"]
    assert called["function"]["name"] == "mcp__wx__get"


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "read"},
        {"type": "function", "name": "read", "namespace": "mcp__files__"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "namespace", "name": "mcp__files__"}],
        },
    ],
)
async def test_a_tool_of_a_namespace_can_be_chosen(choice: Any) -> None:
    bench = writing(READ, WITH_TOOLS)
    response = await response_of(bench, tools=TOOLS, tool_choice=choice)
    assert response["output"][0]["namespace"] == "mcp__files__"
    assert "exec_command" not in bench.compiled[-1].cache_key()


async def test_a_tool_goes_before_one_of_its_name_in_a_namespace() -> None:
    bench = writing('<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>', WITH_TOOLS)
    tools = [*TOOLS, {"type": "function", "name": "read"}]
    choice = {"type": "function", "name": "read"}
    response = await response_of(bench, tools=tools, tool_choice=choice)
    assert "namespace" not in response["output"][0]
    assert "mcp__files__" not in bench.compiled[-1].cache_key()


async def test_an_unknown_namespace_is_refused() -> None:
    allowed = [{"type": "namespace", "name": "mcp__files__"}, {"type": "namespace", "name": "x"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    async with client_of(writing(READ, WITH_TOOLS)) as client:
        asked = {"model": "demo", "input": "hi", "tools": TOOLS, "tool_choice": choice}
        answer = await client.post(RESPONSES, json=asked)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"] == "tool_choice names 'x', which is not in tools"


def test_the_tools_of_all_namespaces_are_bounded_together() -> None:
    """A constraint of several thousand compiled for seconds."""
    tools = [
        {
            "type": "namespace",
            "name": f"n{space}",
            "tools": [{"type": "function", "name": f"f{space}_{each}"} for each in range(128)],
        }
        for space in range(9)
    ]
    named = [inner for space in tools[:8] for inner in space["tools"]]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": named}
    body: Any = {"model": "demo", "input": "hi", "tools": tools[:8], "tool_choice": choice}
    wire = ConversationFields.read(body, Ignored())
    _, found, namespaces = read_conversation(wire, body, Ignored(), CONFIG, None)
    use = _tool_use(wire, found, namespaces, CONFIG)
    assert use is not None
    assert len(use.tools) == len(named) == 1024
    body = body | {"tools": tools}
    with pytest.raises(InvalidRequest, match="there are 1152, with those in namespaces"):
        read_conversation(ConversationFields.read(body, Ignored()), body, Ignored(), CONFIG, None)


async def test_items_that_only_another_server_can_read_are_left_out_by_name() -> None:
    others: list[dict[str, Any]] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "local_shell_call", "id": "ls_1", "call_id": "c", "action": {"type": "exec"}},
        {"type": "local_shell_call_output", "id": "lo_1", "output": "x"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    ]
    hi = {"role": "user", "content": "hi"}
    bench = writing("ok", WITH_TOOLS)
    answer = await post(bench, RESPONSES, {"model": "demo", "input": [hi, *others]})
    assert answer.headers[HEADER] == (
        "input[].type=web_search_call, input[].type=local_shell_call, "
        "input[].type=local_shell_call_output, input[].type=compaction, input[].encrypted_content"
    )
    assert bench.tokenizer.seen == [[hi]]
