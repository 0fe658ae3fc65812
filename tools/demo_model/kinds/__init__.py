"""The kinds of record that the demo model knows, one file for each."""

from collections.abc import Callable
from typing import Final

from tools.demo_model.kinds import character, city, contact, event, invoice, notes, review
from tools.demo_model.records import Record
from tools.demo_model.words import Words

EXTRACTIONS: Final[dict[str, Callable[[Words], Record]]] = {
    "city": city.record,
    "contact": contact.record,
    "event": event.record,
    "invoice": invoice.record,
    "notes": notes.record,
    "review": review.record,
}
"""Kinds whose values all occur in the paragraph."""

KINDS: Final[dict[str, Callable[[Words], Record]]] = {"character": character.record, **EXTRACTIONS}
"""Every kind whose answer is an object."""
