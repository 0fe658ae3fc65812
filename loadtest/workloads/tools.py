"""Function calls: there are three functions, and at least one must be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from loadtest.requests import Request, Tools
from loadtest.schemas import distinct, strict_object

_WORDS = {"type": "string", "pattern": "^[A-Za-z ]{1,24}$"}
_DATE = {"type": "string", "pattern": "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9])$"}
FUNCTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "get_weather": {
            "description": "The weather at a place.",
            "parameters": strict_object(
                {"city": _WORDS, "date": _DATE, "unit": {"enum": ["celsius", "fahrenheit"]}}
            ),
        },
        "book_table": {
            "description": "Book a table at a restaurant.",
            "parameters": strict_object(
                {
                    "restaurant": _WORDS,
                    "date": _DATE,
                    "guests": {"type": "integer", "minimum": 1, "maximum": 12},
                    "outside": {"type": "boolean"},
                }
            ),
        },
        "convert_currency": {
            "description": "Convert an amount of money.",
            "parameters": strict_object(
                {
                    "amount": {"type": "integer", "minimum": 1, "maximum": 100000},
                    "from_currency": {"enum": ["EUR", "USD", "GBP", "JPY", "CHF"]},
                    "to_currency": {"enum": ["EUR", "USD", "GBP", "JPY", "CHF"]},
                }
            ),
        },
    }
)
QUESTIONS: Sequence[str] = (
    "What will the weather be like in Lima on 2026-03-04, in celsius?",
    "Book a table for four at Blue Lantern on 2026-05-17, outside please.",
    "How much are 250 EUR in JPY?",
    "Will it rain in Nairobi on 2026-11-02?",
    "We are six and want to eat at Old Mill on 2026-07-09.",
)


@dataclass(frozen=True, slots=True)
class ToolCalls:
    name: str
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        functions = [
            {**each, "name": name, "parameters": distinct(each["parameters"], nonce)}
            for name, each in FUNCTIONS.items()
        ]
        question = QUESTIONS[number % len(QUESTIONS)]
        return Request(
            self.name, [{"role": "user", "content": question}], Tools(functions), max_tokens=256
        )
