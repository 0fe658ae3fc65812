"""What outlives the process: files, batches, kept responses and usage.

``tables`` has the state (SQLite or PostgreSQL), ``files`` the contents of files (a folder or an
S3 bucket), ``store`` runs both on threads of its own.
"""
