"""The models' markup of reasoning and calls, detected in their chat templates.

chat       properties of a chat template, and the table of formats it is matched with
calls      interface of a tool format: the texts of calls, their ids, and their reader
reasoning  the marks around reasoning
spelled    calls that are a fixed text around a name and its arguments
families   the formats of this kind, and how the templates of each are recognised
template   analysis of a chat template, from its Jinja text or by rendering

``harmony``, ``parameters`` and ``literals`` hold one family each. A further format is
some lines in ``families``, or a module of its own and a line in ``chat.DETECTORS``.
"""

from app.answer.formats.chat import ChatFormat, detect

__all__ = ["ChatFormat", "detect"]
