"""From subschemas that hold together to branches, in which only assertions are left.

A goal is a set of subschemas that one value must satisfy together. Its branches are alternatives,
each a set of subschemas of which only their own assertions (``type``, ``properties``...) are left
to enforce: the disjunctive normal form, without the alternatives that nothing satisfies. So
``anyOf``, ``oneOf``, ``allOf``, ``not``, ``if``, the dependencies and ``$ref`` are exact beside
each other and beside assertions. Every module shows what it does to one schema, R:

    R  {"type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["tea", "milk"]}},
        "oneOf": [T, M, B], "not": S, "unevaluatedProperties": false}
    T  {"properties": {"kind": {"const": "tea"}, "lemon": {"type": "boolean"}}}
    M  {"properties": {"kind": {"const": "milk"}}}
    B  {"properties": {"kind": {"const": "beer"}}}
    S  {"required": ["straw"]}

applicators     R needs ``not S``, and leaves the disjunction T | M | B
negation        ``not S`` is  N = {"type": "object", "properties": {"straw": false}}
disjointness    no object satisfies two of T, M and B: they differ in ``kind``; a number satisfies
                all three, so each stands beside  O = {"type": ["object"]}
evaluation      R, N, O, B  is not followed: ``"beer"`` is not in the ``enum`` of R
applicators     beside T:  U = {"properties": {"kind": true, "lemon": true},
                                "additionalProperties": false};  beside M:  V, without ``lemon``
branches        does all this in turn, and gives  R, N, O, T, U  and  R, N, O, M, V
"""
