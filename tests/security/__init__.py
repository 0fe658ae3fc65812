"""Attacks that succeeded against other servers, sent to this one: see docs/security.md."""
