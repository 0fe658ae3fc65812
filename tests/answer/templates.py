"""Minimal chat templates, with the marks and the requirements of the real ones."""

from __future__ import annotations

import json

from tools import datasets

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QWEN3 = """\
{%- if tools %}<|im_start|>system
# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
<tool_call>
{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}
</tool_call><|im_end|>
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.role == "assistant" and '</think>' in message.content %}
{{- message.content.split('</think>')[-1] }}
{%- else %}{{- message.content }}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n' }}{"name": "{{ call.function.name }}", "arguments": {{-
' ' + call.function.arguments | tojson + '}\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}
{%- endif %}"""

HERMES_2_PRO = """\
{%- for tool in tools or [] %}
{{- tool.function.name + " - " + tool.function.description }}
{%- for name, field in tool.function.parameters.properties|items %}{{ name }}{% endfor %}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{%- if not message.name is defined %}
{{- raise_exception("Tool response dicts require a 'name' key") }}
{%- endif %}
<tool_response>{"name": "{{ message.name }}", "content": {{ message.content|tojson }}}
{%- elif message.tool_calls is defined %}
{%- for call in message.tool_calls %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments|tojson + '}\n</tool_call>' }}
{%- if not loop.last %}{{- '\n' }}{% endif %}
{%- endfor %}
{%- else %}
{{- message.role + ": " + message.content }}
{%- endif %}
{%- endfor %}"""

DEEPSEEK_R1 = """\
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{% endif %}
{%- if message['role'] == 'assistant' %}
{%- set content = message['content'].split('</think>')[-1] %}
{{- '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"""

MISTRAL_LIST = """\
{%- for message in messages %}
{%- if message["role"] == "user" %}
{%- if tools is not none and loop.last %}{{ "[AVAILABLE_TOOLS] " + tools|tojson }}{% endif %}
{{- "[INST] " + message["content"] + "[/INST]" }}
{%- elif message.tool_calls is defined %}
{{- "[TOOL_CALLS] [" }}
{%- for tool_call in message.tool_calls %}
{%- if tool_call.id|length != 9 %}
{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
{%- endif %}
{{- (tool_call.function|tojson)[:-1] + ', "id": "' + tool_call.id + '"}' }}
{%- if not loop.last %}{{- ", " }}{% endif %}
{%- endfor %}
{{- "]" + eos_token }}
{%- elif message["role"] == "tool" %}
{%- if message.tool_call_id|length != 9 %}
{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
{%- endif %}
{{- '[TOOL_RESULTS] {"content": ' + message.content + ', "call_id": "' + message.tool_call_id + '"}' }}
{%- else %}
{{- message["content"] + eos_token }}
{%- endif %}
{%- endfor %}"""  # noqa: E501

MAGISTRAL = """\
{%- set date = strftime_now("%Y-%m-%d") %}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + tools|tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{- '[SYSTEM_PROMPT]First draft your thinking process: [THINK]Your thoughts[/THINK]' }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '[INST]' + message['content'] + '[/INST]' }}
{%- elif message['role'] == 'assistant' %}
{%- generation %}{{ message['content'] }}
{%- for tool in message['tool_calls'] or [] %}
{{- '[TOOL_CALLS]' + tool['function']['name'] + '[ARGS]' + tool['function']['arguments']|tojson }}
{%- endfor %}
{{- eos_token }}{% endgeneration %}
{%- elif message['role'] == 'tool' %}{{ '[TOOL_RESULTS]' + message['content'] }}
{%- endif %}
{%- endfor %}"""

MISTRAL_CALL_ID = MAGISTRAL.replace("+ '[ARGS]'", "+ '[CALL_ID]' + tool['id'] + '[ARGS]'").replace(
    "[THINK]Your thoughts[/THINK]", ""
)

LLAMA_3 = """\
{%- if date_string is not defined %}{% set date_string = '1 Jan 2025' %}{% endif %}
{%- if tools_in_user_message is not defined %}{% set tools_in_user_message = true %}{% endif %}
{%- macro offer() %}Call a function as {"name": its name, "parameters": an object}:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endmacro %}
{%- for message in messages %}
{{- '<|start_header_id|>' + (message.role if message.role != 'tool' else 'ipython') }}
{{- '<|end_header_id|>\n' }}
{%- if loop.first %}Today: {{ date_string }}
{% if tools and not tools_in_user_message %}{{ offer() }}{% endif %}{% endif %}
{%- if loop.index0 == 1 and tools and tools_in_user_message %}{{ offer() }}{% endif %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length > 1 %}{{ raise_exception('only single tool-calls') }}{% endif %}
{%- set call = message.tool_calls[0].function %}
{{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}
{%- else %}{{ message.content }}{% endif %}
{{- '<|eot_id|>' }}
{%- endfor %}"""

USER_AND_ASSISTANT = """\
{%- for message in messages %}
{%- if loop.first and message.role == 'system' %}
{%- elif message.role not in ['user', 'assistant'] %}
{{- raise_exception('only user and assistant') }}
{%- endif %}
{{- message.role + ': ' + message.content + '\n' }}
{%- endfor %}
{%- set ns = namespace(last='assistant') %}
{%- for message in messages if message.role != 'system' %}
{%- if message.role == ns.last %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- set ns.last = message.role %}
{%- endfor %}"""

_PYTHON = "(v | tojson if v is mapping or (v is sequence and v is not string) else v | string)"
_JSON = "(v if v is string else v | tojson)"


def _with_parameters(
    begin: str,
    opening: str,
    middle: str,
    parameter: tuple[str, str, str],
    closing: str,
    separator: str = "",
    end: str = "",
    *,
    value: str = _JSON,
    empty: str = "",
) -> str:
    """A template that writes a text for each argument. ``parameter``: the texts before its name,
    between name and value, and after the value; ``value``: Jinja expression of the value ``v``."""
    texts = {
        **dict(zip(("before", "between", "after"), parameter, strict=True)),
        **{"begin": begin, "opening": opening, "middle": middle, "closing": closing},
        **{"separator": separator, "end": end, "empty": empty},
    }
    settings = "".join(
        f"{{%- set {name} = {json.dumps(text, ensure_ascii=False)} %}}"
        for name, text in texts.items()
    )
    return (
        settings + "{%- for tool in tools or [] %}{{- tool | tojson }}{%- endfor %}"
        "{%- for m in messages %}"
        "{{- '<|' ~ m.role ~ '|>' ~ (m.content or '') }}"
        "{%- if m.tool_calls %}{{- begin }}{%- for call in m.tool_calls %}"
        "{{- (separator if not loop.first else '') ~ opening ~ call.function.name ~ middle }}"
        "{%- for k, v in call.function.arguments | items %}"
        "{{- before ~ k ~ between.replace('KIND', 'true' if v is string else 'false') }}"
        "{{- " + value + " ~ after }}"
        "{%- endfor %}{{- (empty if not call.function.arguments else '') ~ closing }}"
        "{%- endfor %}{{- end }}{%- endif %}{{- '<|end|>' }}"
        "{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
    )


_LINES = ("<parameter=", ">\n", "\n</parameter>\n")
_FUNCTION = ("<tool_call>\n<function=", ">\n")
_KEYS = ("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n")

QWEN3_CODER = _with_parameters(
    "\n", *_FUNCTION, _LINES, "</function>\n</tool_call>", "\n", value=_PYTHON
)
NEMOTRON_3 = _with_parameters(
    "\n", *_FUNCTION, _LINES, "</function>\n</tool_call>\n", value=_PYTHON
)
SEED_OSS = _with_parameters(
    "\n",
    *_FUNCTION,
    ("<parameter=", ">", "</parameter>\n"),
    "</function>\n</tool_call>",
    "\n",
    value="(v if v is string else v | string)",
)
GLM_4_5 = _with_parameters("\n", "<tool_call>", "\n", _KEYS, "</tool_call>", "\n")
GLM_4_7 = _with_parameters(
    "", "<tool_call>", "", ("<arg_key>", "</arg_key><arg_value>", "</arg_value>"), "</tool_call>"
)
LING_3 = _with_parameters(
    "\n",
    "<tool_call>",
    "\n",
    ("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
    "\n</tool_call>",
    "\n",
)
MINIMAX_M2 = _with_parameters(
    "\n<minimax:tool_call>\n",
    '<invoke name="',
    '">\n',
    ('<parameter name="', '">', "</parameter>\n"),
    "</invoke>\n",
    end="</minimax:tool_call>",
)
DEEPSEEK_V3_2 = _with_parameters(
    "\n\n<｜DSML｜function_calls>\n",
    '<｜DSML｜invoke name="',
    '">\n',
    ('<｜DSML｜parameter name="', '" string="KIND">', "</｜DSML｜parameter>\n"),
    "</｜DSML｜invoke>\n",
    end="</｜DSML｜function_calls>",
)
DEEPSEEK_V4 = DEEPSEEK_V3_2.replace("function_calls", "tool_calls").replace(
    'empty = ""', 'empty = "\\n"'
)
DEEPSEEK_V4_1 = DEEPSEEK_V3_2.replace("function_calls", " calls")
for _word in ("invoke", "parameter"):
    DEEPSEEK_V4_1 = DEEPSEEK_V4_1.replace("｜DSML｜" + _word, "｜DSML｜ " + _word)
MIMO_V2 = _with_parameters(
    "",
    "<tool_call><function=",
    ">",
    ("<parameter=", ">", "</parameter>"),
    "</function></tool_call>",
)
HUNYUAN_3 = _with_parameters(
    "<tool_calls:open>\n",
    "<tool_call:open>",
    "<tool_sep:open>\n",
    ("<arg_key:open>", "</arg_key:open>\n<arg_value:open>", "</arg_value:open>\n"),
    "</tool_call:open>\n",
    end="</tool_calls:open>",
)
WITH_PARAMETERS = {
    "qwen 3 coder": QWEN3_CODER,
    "nemotron 3": NEMOTRON_3,
    "seed-oss": SEED_OSS,
    "glm 4.5": GLM_4_5,
    "glm 4.7": GLM_4_7,
    "ling 3": LING_3,
    "minimax m2": MINIMAX_M2,
    "deepseek v3.2": DEEPSEEK_V3_2,
    "deepseek v4": DEEPSEEK_V4,
    "deepseek v4.1": DEEPSEEK_V4_1,
    "mimo v2.6": MIMO_V2,
    "hunyuan 3": HUNYUAN_3,
}
"""Templates that write a text for each argument."""


def of_tokenizer(name: str) -> str:
    """The chat template that belongs to a real tokenizer."""
    config = json.loads((datasets.tokenizers()[name] / "tokenizer_config.json").read_bytes())
    return str(config["chat_template"])


REAL = {
    "like llama": LLAMA_3,
    **{name: of_tokenizer(name) for name in datasets.tokenizers() if name != "gpt2"},
}
"""Templates of real models, and one like Llama's, which may be missing (see ``datasets``)."""
