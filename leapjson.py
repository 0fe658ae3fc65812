"""The constraint core as a library: ``from leapjson import Compiler, JsonSchema, Vocabulary``."""

from app.constraint import Choice, Compiler, Grammar, JsonObject, JsonSchema, Regex
from app.text import Vocabulary

__all__ = ["Choice", "Compiler", "Grammar", "JsonObject", "JsonSchema", "Regex", "Vocabulary"]
