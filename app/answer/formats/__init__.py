"""How models mark their reasoning and write their calls, found in their chat templates.

chat       what is known of a chat template, and the table of the formats it is looked up in
calls      what a format of tool calls is: the texts of calls, their ids, and what reads them
reasoning  the marks around reasoning
spelled    calls that are a fixed text around a name and its arguments
families   the formats of this kind, and how the templates of each are recognised
template   what a chat template does with what it is given, read from its Jinja text, or tried

``harmony``, ``parameters`` and ``literals`` hold one family each. A further format is
some lines in ``families``, or a module of its own and a line in ``chat.TOOL_FORMATS``.
"""

from app.answer.formats.calls import ToolFormat
from app.answer.formats.chat import ChatFormat, detect
from app.answer.formats.families import HERMES, LLAMA, MISTRAL, PLAIN
from app.answer.formats.reasoning import ReasoningFormat

__all__ = [
    "HERMES",
    "LLAMA",
    "MISTRAL",
    "PLAIN",
    "ChatFormat",
    "ReasoningFormat",
    "ToolFormat",
    "detect",
]
