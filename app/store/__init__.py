"""Persistent state: files, batches, kept responses and usage.

``tables`` has the state (SQLite or PostgreSQL), ``store`` the contents of files (a folder or an
S3 bucket), and runs both on threads of its own.
"""
