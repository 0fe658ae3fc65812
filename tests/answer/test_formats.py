from __future__ import annotations

import pytest

from app.answer.formats import detect
from app.answer.formats.calls import ToolFormat
from app.answer.formats.families import HERMES, LLAMA, MISTRAL, PLAIN
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.tools import FunctionTool, ToolUse
from tests.answer import templates

THINK = ReasoningFormat("<think>", "</think>")
BIG_THINK = ReasoningFormat("[THINK]", "[/THINK]")


@pytest.mark.parametrize(
    ("template", "tools", "reasoning"),
    [
        (templates.CHATML, PLAIN, None),
        (templates.QWEN3, HERMES, THINK),
        (templates.HERMES_2_PRO, HERMES, None),
        (templates.DEEPSEEK_R1, PLAIN, THINK),
        (templates.MAGISTRAL, MISTRAL, BIG_THINK),
    ],
)
def test_a_template_tells_its_format_by_its_marks(
    template: str, tools: ToolFormat, reasoning: ReasoningFormat | None
) -> None:
    found = detect(template, ())
    assert (found.tools, found.reasoning) == (tools, reasoning)


def test_the_real_template_of_qwen_is_known() -> None:
    assert detect(templates.REAL["qwen2_5"], ()).tools == HERMES


@pytest.mark.parametrize("name", [name for name in templates.REAL if "llama" in name])
def test_the_template_of_llama_is_known_and_what_it_takes(name: str) -> None:
    llama = detect(templates.REAL[name], ())
    assert llama.tools == LLAMA
    assert not llama.tools.parallel
    assert {"tools", "date_string", "tools_in_user_message"} <= llama.variables


def test_older_mistral_templates_write_a_list_with_their_own_spacing() -> None:
    spaced = detect(templates.MISTRAL_LIST, ()).tools
    assert spaced.heads() == ('[TOOL_CALLS] [{"name": "',)
    dense = detect(templates.MISTRAL_LIST.replace("[TOOL_CALLS] [", "[TOOL_CALLS]["), ()).tools
    assert dense.heads() == ('[TOOL_CALLS][{"name": "',)
    assert len(spaced.ids.new()) == 9


def test_an_id_between_name_and_arguments_is_part_of_the_format() -> None:
    use = ToolUse((FunctionTool("f"),))
    for template, admitted in ((templates.MISTRAL_CALL_ID, True), (templates.MAGISTRAL, False)):
        assert ("[CALL_ID]" in str(detect(template, ()).tools.calls(use))) == admitted


def test_without_a_template_the_form_is_plain_and_nothing_reasons() -> None:
    found = detect(None, ())
    assert (found.tools, found.reasoning) == (PLAIN, None)


def test_special_tokens_alone_tell_that_a_model_reasons() -> None:
    assert detect(templates.CHATML, {"[THINK]", "[/THINK]"}).reasoning == BIG_THINK
    assert detect(templates.CHATML, {"[THINK]"}).reasoning is None


def test_variables_are_those_that_the_template_reads_before_it_sets_them() -> None:
    assert "enable_thinking" in detect(templates.QWEN3, ()).variables
    overwritten = "{% set enable_thinking = true %}{{ enable_thinking }}{{ other }}"
    assert detect(overwritten, ()).variables == {"other"}


def test_blocks_that_only_transformers_knows_do_not_hide_the_variables() -> None:
    assert {"strftime_now", "messages", "eos_token"} <= detect(templates.MAGISTRAL, ()).variables
    loop = "{% for m in messages %}{% if m.x %}{% break %}{% endif %}{% endfor %}"
    assert detect(loop, ()).variables == {"messages"}


def test_a_template_that_cannot_be_parsed_has_no_variables() -> None:
    assert detect("{% if %}", ()).variables == frozenset()


def test_markers_are_the_marks_and_not_the_json_around_them() -> None:
    assert detect(templates.QWEN3, ()).markers() == {
        "<tool_call>", "</tool_call>", "<think>", "</think>",
    }  # fmt: skip
    assert detect(templates.MISTRAL_CALL_ID, ()).markers() == {
        "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]",
    }  # fmt: skip
    assert detect(templates.CHATML, ()).markers() == frozenset()
