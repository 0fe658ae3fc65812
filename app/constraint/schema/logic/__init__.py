"""From subschemas that hold together to branches, in which only assertions are left."""
