"""The graph of a constraint: the answer's path, folds, search, and export."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from loadtest.server import Server
from tests.browser.pages import answer, run, show_tab, write_regex, write_schema

ITEM = {
    "type": "object",
    "properties": {"description": {"type": "string"}, "quantity": {"type": "integer"}},
    "required": ["description", "quantity"],
}


def drawn(page: Page, selector: str) -> set[str]:
    """The ids of the elements of the drawing that match ``selector``."""
    found: list[str] = page.locator(f".picture {selector}").evaluate_all(
        "nodes => nodes.map((node) => node.id)"
    )
    return set(found)


def wait_until_drawn(page: Page, text: str) -> None:
    expect(page.locator(".graph-window")).to_have_attribute("aria-busy", "false")
    expect(page.locator(".picture")).to_contain_text(text)


def assert_in_the_window(page: Page, selector: str) -> None:
    """Wait until the element is inside the window of the drawing."""
    page.locator(".graph-window").scroll_into_view_if_needed()
    expect(page.locator(f".picture {selector}")).to_be_in_viewport()


def walked(server: Server, response_format: dict[str, Any], text: str) -> set[str]:
    """The ways and states in the walk of ``text``, from the API."""
    graph = {"open": [], "max_states": 400}
    with httpx.Client(base_url=server.url, timeout=60) as client:
        body = {"response_format": response_format, "graph": graph}
        made = client.post("/v1/schemas", json=body).json()
        walk = client.post(
            f"/v1/schemas/{made['id']}/walk", json={"text": text, "graph": graph}
        ).json()
    assert walk["accepted"] == len(text)
    assert walk["complete"]
    ways = {step["way"] for step in walk["steps"]}
    ends = {way["id"]: (way["source"], way["target"]) for way in made["graph"]["ways"]}
    return ways | {state for way in ways for state in ends[way]}


def test_the_graph_lights_up_where_the_answer_went_and_nowhere_else(
    page: Page, server: Server
) -> None:
    choices = {"enum": ["Gryffindor", "Hufflepuff", "Ravenclaw", "Slytherin"]}
    schema = {
        "type": "object",
        "properties": {"house": choices, "alive": {"type": "boolean"}},
        "required": ["house", "alive"],
    }
    write_schema(page, schema)
    wait_until_drawn(page, "Hufflepuff")
    assert drawn(page, ".passed") == set()
    run(page)
    expect(page.locator(".graph-status")).to_contain_text("The answer is complete.")
    text = answer(page)
    spec = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    taken = walked(server, spec, text)
    assert drawn(page, ".way.passed") | drawn(page, ".state:is(.passed, .here)") == taken
    assert drawn(page, ".way") - taken  # those of the other houses
    expect(page.locator(".graph-status")).to_contain_text(f"{len(text)} characters")
    assert_in_the_window(page, ".state.here")


def test_a_walk_that_breaks_off_does_not_stop_later_ones(page: Page) -> None:
    wait_until_drawn(page, "email")
    page.route("**/walk", lambda route: route.fulfill(status=200, body='{"steps": ['), times=1)
    with page.expect_response("**/walk"):
        run(page)
    run(page)
    expect(page.locator(".graph-status")).to_contain_text("The answer is complete.")


def test_a_regular_expression_has_a_graph_that_is_walked_too(page: Page, server: Server) -> None:
    write_regex(page, "(yes|no|[a-c]{2})!")
    wait_until_drawn(page, "yes")
    run(page)
    expect(page.locator(".graph-status")).to_contain_text("The answer is complete.")
    taken = walked(server, {"type": "regex", "regex": "(yes|no|[a-c]{2})!"}, answer(page))
    assert drawn(page, ".way.passed") | drawn(page, ".state:is(.passed, .here)") == taken


def ways_of(page: Page) -> int:
    """Number of ways in the graph: of a large one, only the visible part is drawn."""
    words = page.locator(".graph-window").get_attribute("aria-label") or ""
    return int(words.split(" and ")[1].split()[0])


def test_what_is_folded_opens_and_folds_again(page: Page) -> None:
    parts = {f"part_{number}": {"$ref": "#/$defs/Item"} for number in range(200)}
    schema = {"type": "object", "properties": parts, "required": list(parts)}
    write_schema(page, {**schema, "$defs": {"Item": ITEM}})
    search = page.get_by_label("Search the graph")
    search.fill("/properties/part_120")
    expect(page.get_by_text(re.compile(r"^[1-9]\d* match"))).to_be_visible()
    before = ways_of(page)
    search.press("Enter")
    page.get_by_role("button", name=re.compile("^Unfold")).first.click()
    opened = page.locator(".graph-unfolded button")
    expect(opened).to_have_count(1)
    expect(page.locator(".graph-window")).to_have_attribute("aria-busy", "false")
    assert ways_of(page) > before
    opened.click()
    expect(opened).to_have_count(0)
    expect(page.locator(".graph-window")).to_have_attribute("aria-busy", "false")
    assert ways_of(page) == before


def test_search_goes_from_match_to_match(page: Page) -> None:
    wait_until_drawn(page, "company")
    search = page.get_by_label("Search the graph")
    search.fill("company")
    expect(page.get_by_text(re.compile(r"^[1-9]\d* match"))).to_be_visible()
    search.press("Enter")
    found = page.locator(".picture .selected")
    expect(found).to_contain_text("company")
    assert_in_the_window(page, ".selected")
    search.fill("no such thing")
    expect(page.get_by_text("0 matches", exact=True)).to_be_visible()


def test_a_way_leads_to_its_place_in_the_schema(page: Page) -> None:
    wait_until_drawn(page, "company")
    search = page.get_by_label("Search the graph")
    search.fill("/properties/phone")
    search.press("Enter")
    page.locator(".graph-window").press("Enter")
    page.wait_for_function("() => getSelection().toString().includes('phone')")


def test_the_drawing_moves_by_keys_and_wheel(page: Page) -> None:
    wait_until_drawn(page, "company")
    window = page.locator(".graph-window")
    place = "node => { const box = node.getBoundingClientRect(); return [box.x, box.y, box.width] }"
    start = page.locator(".picture #s0")
    begin = start.evaluate(place)
    window.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function(
        "y => document.querySelector('.picture #s0').getBoundingClientRect().y !== y", arg=begin[1]
    )
    page.keyboard.press("+")
    page.wait_for_function(
        "w => document.querySelector('.picture #s0').getBoundingClientRect().width > w * 1.05",
        arg=begin[2],
    )
    page.keyboard.press("0")
    assert_in_the_window(page, "#s0")
    assert_in_the_window(page, ".state:has-text('end')")


def test_the_drawing_is_exported_as_svg_and_as_graphviz_text(page: Page, tmp_path: Path) -> None:
    wait_until_drawn(page, "company")
    ways, states = drawn(page, ".way"), drawn(page, ".state")
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    assert saved.value.suggested_filename == "Contact.svg"
    saved.value.save_as(tmp_path / "graph.svg")
    root = ElementTree.fromstring((tmp_path / "graph.svg").read_text())
    ids = {node.get("id") for node in root.iter() if "way" in (node.get("class") or "").split()}
    assert ids == ways
    with page.expect_download() as saved:
        page.get_by_role("button", name="DOT").click()
    saved.value.save_as(tmp_path / "graph.dot")
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith('digraph "Contact" {')
    assert set(re.findall(r'^  (s\d+) \[label="\d+"', text, re.MULTILINE)) == states


def test_explain_leads_from_each_keyword_to_its_place(page: Page) -> None:
    show_tab(page, "Explain")
    page.get_by_role("button").filter(has_text="/properties/email/format").click()
    page.wait_for_function("() => getSelection().toString().includes('format')")
    expect(page.locator(".explain")).to_contain_text("shortest answer")
    shortest = page.locator(".explain code, .explain pre").filter(has_text='{"name"').first
    assert set(json.loads(shortest.inner_text())) == {"name", "email", "phone", "company"}
