"""How much may be alive at once, and what is said to those for whom there is no room."""
