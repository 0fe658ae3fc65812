"""Leapjson: an LLM server that speaks JSON mode and leaps over forced text."""
