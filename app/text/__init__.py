"""Tokens and text: the tokenizer, the bytes of its vocabulary, bytes back to text."""

from app.text.decoder import IncrementalDecoder
from app.text.tokenizer import HfTokenizer
from app.text.vocabulary import Vocabulary

__all__ = ["HfTokenizer", "IncrementalDecoder", "Vocabulary"]
