import pytest

from limbeck.report.scales import Scale, scale_for, shortened, text_width, tick_label


def test_a_linear_scale_maps_its_ends_and_its_middle() -> None:
    scale = Scale(10, 20, start=100, end=300)
    assert [scale(10), scale(15), scale(20)] == [100, 200, 300]


def test_a_log_scale_gives_each_factor_of_ten_the_same_room() -> None:
    scale = Scale(0.1, 1000, start=0, end=400, log=True)
    assert [scale(v) for v in (0.1, 1, 10, 100, 1000)] == pytest.approx([0, 100, 200, 300, 400])


@pytest.mark.parametrize(
    ("low", "high", "wanted", "ticks"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.46, 0.76, 3, [0.5, 0.6, 0.7]),
        (-3, 3, 3, [-2, 0, 2]),
        (0, 40, 5, [0, 10, 20, 30, 40]),
    ],
)
def test_linear_ticks_are_round_numbers_inside_the_axis(
    low: float, high: float, wanted: int, ticks: list[float]
) -> None:
    assert Scale(low, high, 0, 1).ticks(wanted) == ticks


def test_log_ticks_are_powers_of_ten_and_fill_in_when_these_are_few() -> None:
    assert Scale(0.3, 2000, 0, 1, log=True).ticks(5) == [1, 10, 100, 1000]
    assert Scale(1.8, 9, 0, 1, log=True).ticks(5) == [2, 3, 5, 7]
    assert Scale(11.2, 12.9, 0, 1, log=True).ticks(3) == [11.5, 12, 12.5]


def test_a_single_value_still_has_an_axis() -> None:
    for scale in (scale_for([0.7], 0, 100), scale_for([0.0], 0, 100), scale_for([12], 0, 100, log=True)):
        assert scale.low < scale.high
        assert len(scale.ticks()) >= 2


def test_all_values_lie_inside_with_air_around_them() -> None:
    scale = scale_for([2, 5, 3], 0, 100)
    assert scale.low < 2
    assert scale.high > 5


def test_a_log_axis_refuses_what_has_no_logarithm() -> None:
    with pytest.raises(ValueError, match="positive"):
        scale_for([0.0, 1.0], 0, 1, log=True)


def test_ticks_are_written_as_a_reader_would() -> None:
    assert [tick_label(v) for v in (0, 0.05, 0.7, 12, 1500, 2e-5, 3e7)] == [
        "0",
        "0.05",
        "0.7",
        "12",
        "1,500",
        "2e-05",
        "30,000,000",
    ]


def test_a_long_label_is_cut_to_the_width_it_may_have() -> None:
    assert shortened("short", 200, 13) == "short"
    cut = shortened("a name that goes on and on and on", 100, 13)
    assert cut.endswith("…")
    assert text_width(cut, 13) <= 100


def test_an_axis_of_a_low_plot_has_three_ticks_or_more() -> None:
    """From -0.42 to 0.51 the step next to a third of that is 0.5, which leaves 0 and 0.5."""
    assert Scale(-0.42, 0.51, 0, 100).ticks(3) == [-0.25, 0.0, 0.25, 0.5]
