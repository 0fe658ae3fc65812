"""Bounds on what is alive at once, and the errors of requests that find no room."""

from app.serving.admission.admission import Admission, Ticket

__all__ = ["Admission", "Ticket"]
