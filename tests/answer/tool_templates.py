"""Minimal chat templates that write calls like the real ones, one for each family."""

from __future__ import annotations

from dataclasses import dataclass

_OBJECT = """'{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson + '}'"""


def _with_literals(value: str) -> str:
    """A call in Python's notation, with the expression ``value`` for its argument ``v``."""
    return (
        "call.name + '(' }}{%- for k, v in call.arguments.items() %}{{- k + '=' ~ ("
        + value
        + ") }}"
        "{%- if not loop.last %}{{- ', ' }}{% endif %}{% endfor %}{{- ')'"
    )


_GEMMA_MACROS = """\
{%- macro literal(v) %}
{%- if v is string %}{{- '<|"|>' + v + '<|"|>' }}
{%- elif v is mapping %}{{- '{' + members(v) + '}' }}
{%- elif v is boolean %}{{- v | tojson }}
{%- elif v is iterable %}{{- '[' }}
{%- for each in v %}{{- literal(each) }}{{- ',' if not loop.last }}{% endfor %}{{- ']' }}
{%- else %}{{- v }}
{%- endif %}
{%- endmacro %}
{%- macro members(values) %}
{%- for k, v in values | dictsort %}
{{- k + ':' + literal(v) }}{{- ',' if not loop.last }}
{%- endfor %}
{%- endmacro %}"""


@dataclass(frozen=True, slots=True)
class ToolTemplate:
    """A template that writes calls, and the format that must be detected."""

    format: str
    """Name of the format."""
    call: str
    """Jinja expression of one call, ``call``, with its number ``loop.index0``."""
    begin: str = ""
    separator: str = ""
    end: str = ""
    content: str = "message.content"
    """Jinja expression of the text before calls; empty: none."""
    about_calls: str = ""
    """Instructions of the template about calls."""
    turn_end: str = "<|end|>"
    parallel: bool = True
    macros: str = ""

    @property
    def text(self) -> str:
        before = self.content or "''"
        return (
            f"{self.macros}"
            "{%- if tools %}{{- '<|system|>" + self.about_calls + "' + tools | tojson }}{% endif %}"
            "{%- for message in messages %}{{- '<|' + message.role + '|>' }}"
            "{%- if message.tool_calls %}{{- " + before + " }}{{- '" + self.begin + "' }}"
            "{%- for each in message.tool_calls %}{% set call = each.function %}"
            "{{- " + self.call + " }}{% if not loop.last %}{{- '" + self.separator + "' }}"
            "{%- endif %}{% endfor %}{{- '" + self.end + "' }}"
            "{%- else %}{{- message.content }}{% endif %}{{- '" + self.turn_end + "' }}"
            "{%- endfor %}{% if add_generation_prompt %}{{- '<|assistant|>' }}{% endif %}"
        )


TOOL_TEMPLATES = {
    "qwen 2.5": ToolTemplate(
        "hermes",
        f"'<tool_call>\\n' + {_OBJECT} + '\\n</tool_call>'",
        begin="\\n",
        separator="\\n",
        about_calls='<tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call>',
    ),
    "exaone 4": ToolTemplate(
        "exaone",
        """'<tool_call>' }}{"name": "{{- call.name }}", "arguments": """
        """{{- ' ' + call.arguments | tojson }}}{{- '</tool_call>'""",
        separator="\\n",
        about_calls='<tool_call>{"name": ..., "arguments": ...}</tool_call>',
    ),
    "reka edge": ToolTemplate(
        "hermes",
        f"'<tool_call>\\n' + {_OBJECT} + '\\n</tool_call>'",
        about_calls='<tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call>',
    ),
    "llama 3": ToolTemplate(
        "llama",
        """'{"name": "' + call.name + '", ' + '"parameters": ' + call.arguments | tojson + '}'""",
        content="",
        about_calls="<|start_header_id|>",
        turn_end="<|eot_id|>",
        parallel=False,
    ),
    "deepseek v3": ToolTemplate(
        "deepseek v3",
        "'<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.name + '\\n```json\\n'"
        " + call.arguments | tojson + '\\n```<｜tool▁call▁end｜>'",
        begin="<｜tool▁calls▁begin｜>",
        separator="\\n",
        end="<｜tool▁calls▁end｜>",
        turn_end="<｜end▁of▁sentence｜>",
    ),
    "deepseek v3.1": ToolTemplate(
        "deepseek v3.1",
        "'<｜tool▁call▁begin｜>' + call.name + '<｜tool▁sep｜>' + call.arguments | tojson"
        " + '<｜tool▁call▁end｜>'",
        begin="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        turn_end="<｜end▁of▁sentence｜>",
    ),
    "kimi k2": ToolTemplate(
        "kimi k2",
        "'<|tool_call_begin|>' + each.id + '<|tool_call_argument_begin|>'"
        " + call.arguments | tojson + '<|tool_call_end|>'",
        begin="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
        turn_end="<|im_end|>",
    ),
    "command r7b": ToolTemplate(
        "command",
        """'    {"tool_call_id": "' ~ loop.index0 ~ '", "tool_name": "' ~ call.name"""
        """ ~ '", "parameters": ' ~ call.arguments | tojson ~ '}'""",
        begin="<|START_ACTION|>[\\n",
        separator=",\\n",
        end="\\n]<|END_ACTION|>",
        content="",
        turn_end="<|END_OF_TURN_TOKEN|>",
    ),
    "apertus": ToolTemplate(
        "apertus",
        """'{"' + call.name + '": ' + call.arguments | tojson + '}'""",
        begin="<|tools_prefix|>[",
        separator=", ",
        end="]<|tools_suffix|>",
    ),
    "nemotron nano 2": ToolTemplate(
        "nemotron", _OBJECT, begin="<TOOLCALL>[", separator=", ", end="]</TOOLCALL>"
    ),
    "hunyuan": ToolTemplate(
        "list in tool_calls", _OBJECT, begin="<tool_calls>[", separator=", ", end="]</tool_calls>"
    ),
    "xlam": ToolTemplate(
        "xlam",
        _OBJECT,
        begin="[",
        separator=", ",
        end="]",
        content="",
        about_calls='a single JSON array: [{"name": ..., "arguments": ...}]',
    ),
    "minimax m1": ToolTemplate(
        "minimax m1",
        _OBJECT,
        begin="<tool_calls>\\n",
        separator="\\n",
        end="\\n</tool_calls>",
        about_calls='<tool_calls>\\n{"name": ..., "arguments": ...}\\n</tool_calls>',
    ),
    "internlm 2": ToolTemplate(
        "internlm 2", f"'<|action_start|><|plugin|>\\n' + {_OBJECT} + '<|action_end|>'"
    ),
    "gigachat 3.1": ToolTemplate(
        "gigachat 3.1",
        f"'<|function_call|>' + {_OBJECT}",
        about_calls='function_call="<|function_call|>"',
        parallel=False,
    ),
    "longcat": ToolTemplate(
        "longcat",
        f"'<longcat_tool_call>\\n' + {_OBJECT} + '\\n</longcat_tool_call>'",
        separator="\\n",
    ),
    "functionary 3.1": ToolTemplate(
        "functionary 3.1",
        "'<function=' + call.name + '>' + call.arguments + '</function>'",
        turn_end="<|eom_id|>",
    ),
    "llama 3.2 pythonic": ToolTemplate(
        "pythonic",
        _with_literals("'%s' | format(v)"),
        begin="[",
        separator=", ",
        end="]",
        content="",
        about_calls="[func_name1(params_name1=params_value1)]",
    ),
    "lfm 2.5": ToolTemplate(
        "lfm2",
        _with_literals('"\'" + v + "\'" if v is string else v | string'),
        begin="<|tool_call_start|>[",
        separator=", ",
        end="]<|tool_call_end|>",
    ),
    "olmo 3": ToolTemplate(
        "olmo 3",
        _with_literals("v | tojson"),
        begin="<function_calls>",
        separator="\\n",
        end="</function_calls>",
    ),
    "functiongemma": ToolTemplate(
        "functiongemma",
        "'<start_function_call>call:' + call.name + '{' + members(call.arguments)"
        " + '}<end_function_call>'",
        macros=_GEMMA_MACROS.replace('<|"|>', "<escape>"),
    ),
    "gemma 4": ToolTemplate(
        "gemma 4",
        "'<|tool_call>call:' + call.name + '{' + members(call.arguments) + '}<tool_call|>'",
        macros=_GEMMA_MACROS,
    ),
}
"""Templates by the model that they are taken from."""

GRANITE_3 = """\
{%- if tools %}{{- 'Respond only with <|tool_call|> followed by a JSON list' + tools | tojson }}
{%- endif %}
{%- for message in messages %}
{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content + '<|end_of_text|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"""
"""Lists tools, but writes no calls."""

DEEPSEEK_R1_CALLS = """\
{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<｜User｜>' + message.content }}{% endif %}
{%- if message.role == 'assistant' and message.content is none %}
{%- for each in message.tool_calls %}
{{- '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>' + each.function.name }}
{{- '\\n```json\\n' + each.function.arguments + '\\n```<｜tool▁call▁end｜>' }}
{%- endfor %}
{%- endif %}
{%- if message.role == 'assistant' and message.content is not none %}
{{- '<｜Assistant｜>' + message.content + '<｜end▁of▁sentence｜>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{% endif %}"""
"""Lists no tools; writes calls only for messages without content, and omits marks."""

KIMI_K3 = """\
{%- macro open_tag(tag) %}{{- '<|open|>' + tag + '<|sep|>' }}{% endmacro %}
{%- macro close_tag(tag) %}{{- '<|close|>' + tag + '<|sep|>' }}{% endmacro %}
{%- if tools %}{{ open_tag('message') }}{{ tools | tojson }}{{ close_tag('message') }}{% endif %}
{%- for message in messages %}
{{- open_tag('message role="' + message.role + '"') }}
{%- if message.role != 'assistant' %}{{- message.content }}{% else %}
{{- open_tag('think') }}{{- message.reasoning_content }}{{- close_tag('think') }}
{{- open_tag('response') }}{{- message.content }}{{- close_tag('response') }}
{%- if message.tool_calls %}{{- open_tag('tools') }}
{%- for call in message.tool_calls %}
{{- open_tag('call tool="' ~ call.function.name ~ '" index="' ~ loop.index ~ '"') }}
{%- for name, value in call.function.arguments.items() %}
{%- if value is boolean %}{% set type = 'boolean' %}{% elif value is none %}{% set type = 'null' %}
{%- elif value is number %}{% set type = 'number' %}{% elif value is string %}
{%- set type = 'string' %}{% elif value is mapping %}{% set type = 'object' %}
{%- else %}{% set type = 'array' %}{% endif %}
{{- open_tag('argument key="' + name + '" type="' + type + '"') }}
{{- value if value is string else value | tojson }}{{- close_tag('argument') }}
{%- endfor %}{{- close_tag('call') }}{% endfor %}{{- close_tag('tools') }}{% endif %}
{%- endif %}{{- close_tag('message') }}{{- '<|end_of_msg|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- open_tag('message role="assistant"') }}
{{- open_tag('response' if thinking is defined and not thinking else 'think') }}{% endif %}"""
"""Writes a type for each argument, and content before calls, even if it is empty."""
