"""How much may be alive at once, and what is said to those for whom there is no room."""

from app.serving.admission.admission import Admission, Ticket

__all__ = ["Admission", "Ticket"]
