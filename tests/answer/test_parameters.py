"""Formats that write a text for each argument, detected in chat templates."""

from __future__ import annotations

import pytest

from app.answer.confidence import ConfidenceReader
from app.answer.formats import detect
from app.answer.formats.families import HERMES, PLAIN
from app.answer.formats.spelled import SpelledCalls
from app.answer.reader import AnswerReader
from app.answer.tools import FunctionTool, ToolUse
from app.core.arguments import Parameters
from app.core.events import AnswerToken, AnswerUsage, TokenChunk
from app.core.literals import Literals
from tests.answer import templates
from tests.answer.rendered import TURNS
from tests.answer.round_trips import check
from tests.answer.tool_templates import TOOL_TEMPLATES


@pytest.mark.parametrize("name", templates.WITH_PARAMETERS)
def test_what_a_template_writes_is_admitted_and_read_as_what_it_says(name: str) -> None:
    report = check(templates.WITH_PARAMETERS[name])
    assert report.format.tools.name == "parameters"
    assert report.failed == {}
    assert len(report.passed) == len(TURNS)


def test_every_newline_is_the_templates_own() -> None:
    coder = detect(templates.QWEN3_CODER, ()).tools
    assert isinstance(coder, SpelledCalls)
    assert coder == SpelledCalls(
        name="parameters",
        call="<tool_call>\n<function=$name>\n$arguments</function>\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
        notation=Parameters(
            before="<parameter=",
            between=">\n",
            after="\n</parameter>\n",
            stop="</parameter>",
            python_words=True,
        ),
    )
    nemotron = detect(templates.NEMOTRON_3, ()).tools
    assert isinstance(nemotron, SpelledCalls)
    assert (nemotron.separator, nemotron.call) == ("", coder.call + "\n")


def test_what_tells_types_apart_is_seen() -> None:
    format = detect(templates.DEEPSEEK_V4, ()).tools
    assert isinstance(format, SpelledCalls)
    assert isinstance(format.notation, Parameters)
    assert format.notation.types == (("string", '" string="true">'),)
    assert format.notation.between_of("number") == '" string="false">'
    assert format.notation.empty == "\n"


def test_a_template_that_prints_values_has_pythons_arrays_and_objects() -> None:
    format = detect(templates.SEED_OSS, ()).tools
    assert isinstance(format, SpelledCalls)
    assert isinstance(format.notation, Parameters)
    assert format.notation.nested == Literals(quote="'")


def test_marks_and_special_tokens_are_writable() -> None:
    marks = detect(templates.MINIMAX_M2, ()).markers()
    assert {"<minimax:tool_call>", "</minimax:tool_call>", "</parameter>"} <= marks
    for template in (templates.DEEPSEEK_V4, templates.DEEPSEEK_V4_1):
        assert "｜DSML｜" in detect(template, ()).markers()
    marks = detect(templates.GLM_4_5, ()).markers()
    assert {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"} <= marks


def test_templates_that_write_otherwise_are_left_to_others() -> None:
    assert detect(templates.QWEN3, ()).tools == HERMES
    escaping = templates.MINIMAX_M2.replace("v if v is string", "v | e if v is string")
    assert detect(escaping, ()).tools == PLAIN
    raising = "{{ raise_exception('no calls') if messages[1].tool_calls }}" + templates.GLM_4_5
    assert detect(raising, ()).tools == PLAIN


@pytest.mark.parametrize(
    ("template", "text", "said"),
    [
        (
            templates.QWEN3_CODER,
            'Ä <tool_call>\n<function=f>\n<parameter=city>\nä"x\n</parameter>\n'
            "<parameter=on>\nTrue\n</parameter>\n<parameter=sizes>\n[7, 12]\n</parameter>\n"
            "</function>\n</tool_call>",
            {"/city": 'ä"x', "/on": "True", "/sizes/0": "7", "/sizes/1": "12"},
        ),
        (
            TOOL_TEMPLATES["lfm 2.5"].text,
            "<|tool_call_start|>[f(city='ä\"x', on=True, sizes=[7, 12])]<|tool_call_end|>",
            {"/city": "'ä\"x'", "/on": "True", "/sizes/0": "7", "/sizes/1": "12"},
        ),
    ],
)
def test_values_have_the_confidence_of_the_tokens_that_wrote_them(
    template: str, text: str, said: dict[str, str]
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "on": {"type": "boolean"},
            "sizes": {"type": "array", "items": {"type": "integer"}},
        },
    }
    use = ToolUse((FunctionTool("f", None, schema),))
    answer_reader = AnswerReader(detect(template, ()), use=use)
    confidences = ConfidenceReader("free")
    usage = AnswerUsage(*[0] * 7)
    for at, character in enumerate(text):
        token = AnswerToken(at, character.encode(), source="sampled", logprob=-0.01 * at)
        chunk = TokenChunk("r", character.encode(), [token], usage)
        confidences.read([chunk], character, answer_reader.push(character))
    found = {each.pointer: each for each in confidences.finish().entries if each.what == "value"}
    assert set(found) == set(said)
    for pointer, written in said.items():
        at = text.index(written)
        places = range(at, at + len(written))
        assert found[pointer].call == 0
        assert found[pointer].tokens == len(written)
        assert found[pointer].logprob == pytest.approx(sum(-0.01 * place for place in places))
