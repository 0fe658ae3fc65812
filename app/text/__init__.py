"""Tokens and text: the tokenizer, and the bytes of its vocabulary."""

from app.text.tokenizer import HfTokenizer
from app.text.vocabulary import Vocabulary

__all__ = ["HfTokenizer", "Vocabulary"]
