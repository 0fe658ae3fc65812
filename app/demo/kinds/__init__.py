"""The kinds of record the demo model knows, one file for each."""

from collections.abc import Callable
from typing import Final

from app.demo.kinds import character, city, contact, event, invoice, notes, review
from app.demo.records import Record
from app.demo.words import Words

EXTRACTIONS: Final[dict[str, Callable[[Words], Record]]] = {
    "city": city.record,
    "contact": contact.record,
    "event": event.record,
    "invoice": invoice.record,
    "notes": notes.record,
    "review": review.record,
}
"""Kinds whose every value stands in the paragraph."""

KINDS: Final[dict[str, Callable[[Words], Record]]] = {"character": character.record, **EXTRACTIONS}
"""Every kind that is answered with an object."""
