"""What requests to several endpoints have in common: bodies, fields, constraints, tools."""
