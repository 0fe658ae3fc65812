"""The autoscaling rules of the manifests under a recorded load: they react, and do not flap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from loadtest.autoscale.__main__ import FIGURE
from loadtest.autoscale.figure import figure
from loadtest.autoscale.fleet import Service, measured
from loadtest.autoscale.hpa import Autoscaler, Direction, Policy, Rule, Target
from loadtest.autoscale.recording import Recording, read
from loadtest.autoscale.report import (
    DRAIN,
    MAX_QUEUE,
    Outcome,
    capacity,
    cluster,
    outcome,
    recorded_loads,
    steady,
)
from loadtest.autoscale.rules import hpa, keda, queue_alone
from loadtest.autoscale.simulation import WAITING, Cluster, simulate
from tests.k8s.manifests import literals

REACTION = 60
"""Seconds from a queue to the decision for more pods."""
FLEETS = (1.5, 2.5, 3.3, 5.0, 7.5, 9.0)
"""Steady loads, by how many full servers they would take."""


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read()


@pytest.fixture(scope="module")
def outcomes(recording: Recording) -> Mapping[str, Outcome]:
    surroundings, loads = cluster(recording), recorded_loads(recording)
    rules = (hpa(), keda(), queue_alone(hpa()))
    return {rule.name: outcome(rule, surroundings, loads) for rule in rules}


@pytest.mark.parametrize("rule", ["HPA", "KEDA"])
def test_more_pods_are_asked_for_within_a_minute_of_a_queue(
    rule: str, outcomes: Mapping[str, Outcome]
) -> None:
    reactions = outcomes[rule].reactions
    assert reactions
    assert max(reactions) <= REACTION


@pytest.mark.parametrize("rule", ["HPA", "KEDA"])
def test_no_pod_is_taken_away_and_brought_back_while_the_load_is_steady(
    rule: str, outcomes: Mapping[str, Outcome]
) -> None:
    assert outcomes[rule].flaps == []


def test_the_queue_alone_flaps_under_the_same_load(outcomes: Mapping[str, Outcome]) -> None:
    assert len(outcomes["queue alone"].flaps) > 10


@pytest.mark.parametrize("rule", ["HPA", "KEDA"])
def test_pods_that_are_taken_away_finish_what_they_have(
    rule: str, outcomes: Mapping[str, Outcome]
) -> None:
    assert outcomes[rule].run.lost == 0
    assert any(change < 0 for _, change in outcomes[rule].run.changes)


@pytest.mark.parametrize("rule", ["HPA", "KEDA"])
def test_pods_follow_the_load_down_again(rule: str, outcomes: Mapping[str, Outcome]) -> None:
    moments = outcomes[rule].run.moments
    assert moments[-1].replicas <= max(each.replicas for each in moments) // 3


def test_fleets_of_any_size_settle(recording: Recording) -> None:
    for servers in FLEETS:
        load = steady(recording, servers, 2400)
        found = outcome(hpa(), cluster(recording, seed=round(servers * 10)), [load])
        assert found.flaps == [], servers
        assert max(found.reactions, default=0) <= REACTION, servers
        settled = found.run.moments[-1].replicas
        assert servers <= settled <= max(found.rule.least, 2 * servers), servers


def test_the_simulated_server_queues_as_the_recorded_one_did(recording: Recording) -> None:
    still = Direction(0, [Policy("Pods", 1, 15)])
    one = Rule("one server", 1, 1, [Target(WAITING, 1.0, "pods")], still, still)
    alone = Cluster(measured(recording), 0.0, 10, 10**6, 0.0)
    run = simulate(one, alone, [each.arrived for each in recording.seconds])
    simulated = [each.waiting for each in run.moments]
    recorded = [each.waiting for each in recording.seconds]
    assert max(simulated) == pytest.approx(max(recorded), rel=0.2)
    assert sum(simulated) == pytest.approx(sum(recorded), rel=0.1)


def test_the_simulation_has_the_manifests_drain_and_the_servers_queue() -> None:
    from app.server.settings import Settings

    settings = literals("leapjson", "base")
    assert float(settings["LEAPJSON_DRAIN_SECONDS"]) == DRAIN
    assert Settings.model_fields["max_queue"].default == MAX_QUEUE


def test_the_figure_in_the_documentation_is_the_one_these_manifests_give(
    recording: Recording, outcomes: Mapping[str, Outcome]
) -> None:
    server = capacity(measured(recording))
    drawn = figure(outcomes["HPA"], outcomes["queue alone"], server)
    assert drawn == FIGURE.read_text(encoding="utf-8"), "run python -m loadtest.autoscale"


STEADY = Direction(0, [Policy("Percent", 100, 15)])


def rule(up: Direction = STEADY, down: Direction = STEADY, average: float = 10.0) -> Rule:
    return Rule("test", 1, 100, [Target("m", average, "pods")], up, down)


@pytest.mark.parametrize(
    ("values", "pods", "wanted"),
    [
        ([20.0, 20.0], 2, 4),  # the formula: 2 * 20 / 10
        ([10.9, 10.9], 2, 2),  # within the tolerance of 0.1
        ([11.5, 11.5], 2, 3),
        ([4.0, 4.0, 4.0], 3, 2),
        ([30.0], 2, 3),  # the pod without a metric counts as 0: 30 / 2 / 10 * 2
        ([15.0], 2, 2),  # so counted it is no reason to grow
        ([5.0], 2, 2),  # and as the target on the way down: 15 / 2 / 10 * 2 = 1.5
    ],
)
def test_the_autoscaler_asks_for_what_kubernetes_documents(
    values: list[float], pods: int, wanted: int
) -> None:
    assert Autoscaler(rule()).sync(0, pods, {"m": values}) == wanted


def test_a_sum_for_all_pods_gives_the_same_wish_as_the_mean_of_each() -> None:
    external = replace(rule(), targets=[Target("m", 10.0, "external")])
    assert Autoscaler(external).sync(0, 2, {"m": [20.0, 20.0]}) == 4


def test_the_highest_wish_of_the_window_holds_on_the_way_down() -> None:
    autoscaler = Autoscaler(rule(down=replace(STEADY, window=60)))
    assert autoscaler.sync(0, 4, {"m": [10.0] * 4}) == 4
    assert [autoscaler.sync(at, 4, {"m": [1.0] * 4}) for at in (15, 30, 45, 60)] == [4] * 4
    assert autoscaler.sync(75, 4, {"m": [1.0] * 4}) == 1


def test_the_lowest_wish_of_the_window_holds_on_the_way_up() -> None:
    autoscaler = Autoscaler(rule(up=replace(STEADY, window=15)))
    assert autoscaler.sync(0, 2, {"m": [10.0] * 2}) == 2
    assert autoscaler.sync(15, 2, {"m": [20.0] * 2}) == 2
    assert autoscaler.sync(30, 2, {"m": [20.0] * 2}) == 4


def test_policies_bound_the_change_of_their_period() -> None:
    autoscaler = Autoscaler(rule(up=Direction(0, [Policy("Pods", 2, 60)])))
    assert autoscaler.sync(0, 2, {"m": [90.0] * 2}) == 4
    assert autoscaler.sync(15, 4, {"m": [90.0] * 4}) == 4
    assert autoscaler.sync(60, 4, {"m": [90.0] * 4}) == 6


def test_a_tolerance_of_its_own_keeps_pods_on_the_way_down() -> None:
    autoscaler = Autoscaler(rule(down=replace(STEADY, tolerance=0.8)))
    assert autoscaler.sync(0, 4, {"m": [2.5] * 4}) == 4
    assert autoscaler.sync(15, 4, {"m": [1.5] * 4}) == 1


def test_a_server_answers_no_more_than_its_places_allow() -> None:
    service = Service(alone=0.1, beside=0.01, max_running=10)
    assert capacity(service) == pytest.approx(50.0)
    assert service.finished(1) == pytest.approx(1 / 0.11)
