import itertools
import random

from limbeck.report.labels import Box, place_labels

BOUNDS = Box(0, 0, 800, 400)


def test_overlap_is_the_shared_area() -> None:
    assert Box(0, 0, 10, 10).overlap(Box(6, 8, 10, 10)) == 4 * 2
    assert Box(0, 0, 10, 10).overlap(Box(10, 0, 5, 5)) == 0
    assert Box(-5, 0, 10, 4).outside(Box(0, 0, 100, 100)) == 5 * 4


def test_a_single_label_is_right_of_its_point() -> None:
    (place,) = place_labels([(100, 100)], [(60, 16)], BOUNDS)
    assert place.box.left > 100
    assert place.box.top == 100 - 8
    assert not place.leader


def test_a_label_at_the_right_edge_moves_to_the_left_of_its_point() -> None:
    (place,) = place_labels([(790, 200)], [(60, 16)], BOUNDS)
    assert place.box.left + place.box.width < 790
    assert place.box.outside(BOUNDS) == 0


def test_labels_of_a_cluster_cover_neither_each_other_nor_a_point_nor_the_margin() -> None:
    draw = random.Random(3)
    points = [(300 + draw.uniform(-40, 40), 200 + draw.uniform(-60, 60)) for _ in range(8)]
    places = place_labels(points, [(90, 16)] * 8, BOUNDS)
    assert len(places) == 8
    for first, second in itertools.combinations(places, 2):
        assert first.box.overlap(second.box) == 0
    for place in places:
        assert place.box.outside(BOUNDS) == 0
        assert all(place.box.overlap(Box(x - 6, y - 6, 12, 12)) == 0 for x, y in points)


def test_labels_pushed_far_away_get_a_line_to_their_point() -> None:
    places = place_labels([(400, 200)] * 12, [(120, 16)] * 12, BOUNDS)
    assert any(place.leader for place in places)
    for first, second in itertools.combinations(places, 2):
        assert first.box.overlap(second.box) == 0
