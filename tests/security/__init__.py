"""Attacks that other servers fell to, sent to this one: see docs/security.md."""
