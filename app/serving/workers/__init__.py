"""Processes that do what may take long, each job bounded in time and memory."""
