"""The terminals that ``%import common.NAME`` brings in, as regular expressions of their texts.

Names and meanings are those of Lark's documentation (Grammar Reference, ``common``). Quoted
strings and block comments end at their first end, as Lark's lexer reads them.
"""

from __future__ import annotations

_DIGITS = "[0-9]+"
_SIGN = r"[+\-]?"
_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_EXPONENT = r"[eE][+\-]?[0-9]+"
_FLOAT = f"(?:{_DIGITS}{_EXPONENT}|{_DECIMAL}(?:{_EXPONENT})?)"
_NUMBER = f"(?:{_FLOAT}|{_DIGITS})"

COMMON: dict[str, str] = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": _DIGITS,
    "SIGNED_INT": _SIGN + _DIGITS,
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": _SIGN + _FLOAT,
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": _SIGN + _NUMBER,
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"\/\/[^\n]*",
    "C_COMMENT": r"\/\*(?:[^*]|\*+[^*\/])*\*+\/",
    "SQL_COMMENT": r"--[^\n]*",
}
