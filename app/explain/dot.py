"""The graph as text for Graphviz, which lays it out itself; names are those of the SVG file."""

from __future__ import annotations

from app.explain.drawing import Box, Drawing, more_text

_FILLS = {True: "#444444", False: "#ffffff"}


def dot_text(drawing: Drawing, title: str) -> str:
    """A digraph: nodes are states, and an edge has a line for each way, as a box has."""
    lines = [
        f"digraph {_quoted(title)} {{",
        f"  label={_quoted(title)}; labelloc=t; rankdir=TB;",
        '  node [shape=circle, fontname="monospace", fontsize=10, style=filled];',
        '  edge [fontname="monospace", fontsize=10];',
    ]
    for number, state in enumerate(drawing.states):
        accepting = drawing.graph.nodes[number].accepting
        shape = "doublecircle" if accepting else "circle"
        lines.append(
            f'  s{number} [label="{number}", xlabel={_quoted(state.note)}, shape={shape}, '
            f'fillcolor="{_FILLS[accepting]}"];'
        )
    for number, box in enumerate(drawing.boxes):
        target = f"s{box.target}"
        if box.target is None:
            target = f"cut{number}"
            lines.append(f'  {target} [label="more, not drawn", shape=plaintext, style=""];')
        lines.append(f"  s{box.source} -> {target} [label={_label(drawing, box)}];")
    return "\n".join([*lines, "}", ""])


def _label(drawing: Drawing, box: Box) -> str:
    """The choice of each way in angle brackets, then its leap; lines aligned to the left."""
    lines = []
    for number in box.ways:
        way = drawing.ways[number]
        lines.append(" ".join(filter(None, [way.choice and f"<{way.choice}>", way.leap])))
    if box.more:
        lines.append(more_text(box.more))
    return '"' + "".join(_escaped(line) + r"\l" for line in lines) + '"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """As a quoted string of the DOT language has it, in which a backslash begins an escape."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
