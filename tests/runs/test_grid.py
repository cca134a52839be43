from __future__ import annotations

import pytest

from limbeck.console import Lines
from limbeck.errors import LimbeckError
from limbeck.objectives import parse
from limbeck.progress import reporting
from limbeck.recipe.files import load_recipe, variants
from limbeck.runs.grid import cells, load_base, parse_axis, split_outside


def test_values_are_split_outside_of_brackets_and_quotes():
    assert split_outside("a, softmax_ce(tau=1, scale=true),'b,c',[1,2]", ",") == [
        "a",
        "softmax_ce(tau=1, scale=true)",
        "'b,c'",
        "[1,2]",
    ]
    assert parse_axis("student.dim=64,128").values == ("64", "128")


@pytest.mark.parametrize("text", ["student.dim", "=1,2", "student.dim=", "student.dim=1,,2"])
def test_an_invalid_axis_is_refused_with_an_example(text):
    with pytest.raises(LimbeckError, match="not of the form KEY=A,B,C"):
        parse_axis(text)


def test_a_value_that_occurs_twice_is_refused():
    with pytest.raises(LimbeckError, match="64 is there twice"):
        parse_axis("student.dim=64,64")


def test_a_grid_has_every_combination_and_names_them_shortly(recipe):
    grid = cells(load_recipe(recipe), [parse_axis("objective=one_hot,mse"), parse_axis("student.dim=8,16")])
    assert [cell.name for cell in grid] == ["one_hot, dim=8", "one_hot, dim=16", "mse, dim=8", "mse, dim=16"]
    assert [(cell.recipe.stages[-1].objectives, cell.recipe.student.dim) for cell in grid] == [
        (["one_hot"], 8),
        (["one_hot"], 16),
        (["mse"], 8),
        (["mse"], 16),
    ]
    assert len({cell.folder for cell in grid}) == 4


def test_keys_with_the_same_ending_are_distinguished(recipe):
    axes = [parse_axis("student.query_length=4"), parse_axis("teacher.train.query_length=6")]
    assert cells(load_recipe(recipe), axes)[0].name == "student.query_length=4, teacher.train.query_length=6"


def test_what_never_changes_is_not_in_the_names(recipe):
    grid = cells(load_recipe(recipe), [parse_axis("student.dim=8,16"), parse_axis("stages.0.lr=0.1")])
    assert [cell.name for cell in grid] == ["dim=8", "dim=16"]
    assert [cell.recipe.stages[0].lr for cell in grid] == [0.1, 0.1]


def test_a_name_has_the_arguments_that_apply_and_a_folder_all(recipe):
    grid = cells(load_recipe(recipe), [parse_axis("objective=softmax_ce,m3se"), parse_axis("objective.tau=1,4")])
    assert [cell.name for cell in grid] == ["softmax_ce, tau=1", "softmax_ce, tau=4", "m3se"]
    assert grid[2].folder.startswith("m3se-tau-1-")
    tries = cells(grid[2].recipe, [parse_axis("stages.0.lr=0.1,0.2"), parse_axis("objective.gamma0=0,1")], grid[2])
    assert [tried.name for tried in tries] == ["m3se, lr=0.1", "m3se, lr=0.2"]
    assert tries[1].folder.startswith("m3se-tau-1-lr-0-2-gamma0-0-")


def test_an_argument_may_be_given_before_the_objective_that_has_it(recipe):
    grid = cells(load_recipe(recipe), [parse_axis("objective.tau=1,4"), parse_axis("objective=softmax_ce,m3se")])
    assert [(cell.name, cell.recipe.stages[-1].objectives) for cell in grid] == [
        ("tau=1, softmax_ce", ["softmax_ce"]),
        ("m3se", ["m3se"]),
        ("tau=4, softmax_ce", ["softmax_ce(tau=4)"]),
    ]


def test_several_objectives_are_joined_by_plus(recipe):
    (cell,) = cells(load_recipe(recipe), [parse_axis("objective=softmax_ce(tau=2) + 0.1 * one_hot")])
    assert cell.recipe.stages[-1].objectives == ["softmax_ce(tau=2)", "0.1 * one_hot"]


def test_an_argument_is_set_where_the_objective_has_it_and_other_cells_count_once(recipe):
    axis = parse_axis("objective.tau=1,4")
    base = load_recipe(recipe, ["stages.0.objectives=[0.5 * softmax_ce, margin_mse]"])
    assert [cell.recipe.stages[-1].objectives for cell in cells(base, [axis])] == [
        ["0.5 * softmax_ce", "margin_mse"],
        ["0.5 * softmax_ce(tau=4)", "margin_mse"],
    ]
    assert len(cells(load_recipe(recipe, ["stages.0.objectives=[margin_mse]"]), [axis])) == 1
    with pytest.raises(LimbeckError, match="^--over objective.tau=hot: softmax_ce: tau='hot' is not allowed"):
        cells(base, [parse_axis("objective.tau=hot")])
    with pytest.raises(LimbeckError, match="tau=2x cannot be read; give a number or a word"):
        cells(base, [parse_axis("objective.tau=2x")])


@pytest.mark.parametrize(
    ("objective", "axis", "wanted"),
    [
        ("margin_mse", "pairs=judged,all", ["margin_mse", "margin_mse(pairs=all)"]),
        ("0.5 * softmax_ce", "scale=true,false", ["0.5 * softmax_ce(scale=true)", "0.5 * softmax_ce"]),
        ("softmax_ce", "tau_teacher=null,2", ["softmax_ce", "softmax_ce(tau_teacher=2)"]),
    ],
)
def test_an_argument_takes_any_value_of_a_recipe(recipe, objective, axis, wanted):
    base = load_recipe(recipe, [f"stages.0.objectives=[{objective}]"])
    found = [cell.recipe.stages[-1].weighted_objectives() for cell in cells(base, [parse_axis(f"objective.{axis}")])]
    assert found == [[parse(text)] for text in wanted]


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("student.dimm=64", "student.dimm: unknown key; .*dim"),
        ("objective=softmax_c", "unknown objective 'softmax_c'"),
        ("stages.3.lr=1", "--over stages.3.lr=1: the recipe has no key stages.3.lr"),
        ("student.dim=abc", "--over student.dim=abc: student.dim: .*; give --over a value that the key can have"),
        ("student.layers=-1", "student.layers: "),
    ],
)
def test_a_key_or_value_that_does_not_exist_is_named_before_anything_runs(recipe, axis, message):
    with pytest.raises(LimbeckError, match=message):
        cells(load_recipe(recipe), [parse_axis(axis)])


IN_BATCH = ["stages.0.lists.in_batch=true"]


def test_what_an_axis_replaces_need_not_fit_the_recipe(recipe):
    axes = [parse_axis("objective=one_hot,focal"), parse_axis("objective.tau=1,4"), parse_axis("student.dim=8,16")]
    with pytest.raises(LimbeckError, match="stored scores do not cover documents of other queries"):
        load_recipe(recipe, IN_BATCH)  # softmax_ce
    grid = cells(load_base(recipe, IN_BATCH, axes), axes)
    assert len(grid) == 8
    assert all(cell.recipe.stages[0].lists.in_batch for cell in grid)
    assert grid[-1].recipe.stages[0].objectives == ["focal(tau=4)"]


def test_a_value_of_an_axis_that_does_not_fit_is_named(recipe):
    axes = [parse_axis("objective=one_hot,mse")]
    with pytest.raises(LimbeckError, match="^--over objective=mse: .*stored scores do not cover"):
        cells(load_base(recipe, IN_BATCH, axes), axes)


@pytest.mark.parametrize("axes", [[], ["student.dim=8"], ["objective=mse,one_hot"], ["stages.7.lr=1"]])
def test_a_recipe_that_no_axis_can_fix_is_refused_with_its_own_error(recipe, axes):
    with pytest.raises(LimbeckError, match="^recipe: recipe: stages.0.lists.in_batch: stored scores do not cover"):
        load_base(recipe, IN_BATCH, [parse_axis(axis) for axis in axes])


def test_a_mistake_in_what_is_tuned_names_the_option(recipe):
    (cell,) = cells(load_recipe(recipe), [])
    with pytest.raises(LimbeckError, match="^--tune stages.3.lr=1: the recipe has no key"):
        cells(cell.recipe, [parse_axis("stages.3.lr=1")], cell)
    with pytest.raises(LimbeckError, match="^--tune student.dim=abc: .*; give --tune a value"):
        cells(cell.recipe, [parse_axis("student.dim=abc")], cell)


def test_a_seed_belongs_to_the_student_only(recipe):
    (cell,) = cells(load_recipe(recipe), [])
    changed = cell.with_seed(5)
    assert (changed.seed, changed.data_seed, changed.teacher_seed) == (5, 0, 0)


def test_a_variant_is_another_student_with_what_all_students_have(recipe, tmp_path):
    recipe["student"] |= {"layers": 2, "document_length": 9, "scale": 5}
    (tmp_path / "mine.yaml").write_text("student: {kind: dipair, tokens: [2, 2], dim: 8}")
    (tmp_path / "longer.yaml").write_text("stages: [{objectives: [one_hot], steps: 7}]")
    names = [str(tmp_path / "mine.yaml"), str(tmp_path / "longer.yaml"), "cross-small"]
    mine, longer, cross = cells(load_recipe(recipe), [parse_axis(f"variant={','.join(names)}")])
    assert [cell.name for cell in (mine, longer, cross)] == ["mine", "longer", "cross-small"]
    student = mine.recipe.student
    assert (student.kind, student.layers, student.document_length) == ("dipair", 2, 9)
    assert mine.recipe.stages == load_recipe(recipe).stages
    assert longer.recipe.student == load_recipe(recipe).student and longer.recipe.stages[0].steps == 7
    assert cross.recipe.student.kind == "cross_encoder" and cross.recipe.student.init_from == student.init_from


@pytest.mark.parametrize("name", variants())
def test_every_shipped_variant_fits_the_recipe_for_pairs(name):
    (cell,) = cells(load_recipe("dipair-laptop"), [parse_axis(f"variant={name}")])
    assert cell.name == name and cell.recipe.student.document_length == 32


def test_a_variant_of_the_same_kind_keeps_the_recipes_sizes():
    names = ["dipair-tsf", "dipair-ffnn", "de-ffnn", "de-cos"]
    base = load_recipe("dipair-msmarco")
    tsf, ffnn, two, cosine = (cell.recipe.student for cell in cells(base, [parse_axis(f"variant={','.join(names)}")]))
    assert tsf == base.student
    assert (ffnn.tokens, ffnn.dim, ffnn.head_width) == ((4, 8), 256, 128)
    assert (two.tokens, two.dim, two.head) == ((1, 1), None, "ffnn")
    assert (cosine.tokens, cosine.dim, cosine.head) == ((1, 1), None, "cosine")


@pytest.mark.parametrize(
    ("text", "line"),
    [("teacher: {}", "is not a variant .teacher."), ("[1]", "is not a variant"), ("student: 3", "is not a variant")],
)
def test_an_invalid_variant_is_refused(recipe, tmp_path, text, line):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(LimbeckError, match=line):
        cells(load_recipe(recipe), [parse_axis(f"variant={tmp_path / 'bad.yaml'}")])
    with pytest.raises(LimbeckError, match="no such variant; did you mean 'de-cos'"):
        cells(load_recipe(recipe), [parse_axis("variant=de-kos")])


def test_an_old_name_of_a_key_works_everywhere_with_one_line(recipe, capsys):
    student = {"start": recipe["student"].pop("init_from")} | recipe["student"]
    with reporting(Lines()):
        axis = parse_axis("stages.0.lists.below_positive=0.1,0.2")
        base = load_base(recipe | {"student": student}, ["student.separate=true"], [axis])
        first, second = cells(base, [axis])
    assert base.student.init_from == student["start"] and base.student.untied
    assert [cell.recipe.stages[0].lists.false_negative_margin for cell in (first, second)] == [0.1, 0.2]
    assert capsys.readouterr().err.splitlines() == [
        "--over stages.0.lists.below_positive: below_positive is called false_negative_margin now; "
        "the old name still works",
        "recipe: start is called init_from now; the old name still works",
        "--set student.separate: separate is called untied now; the old name still works",
    ]


def test_both_names_of_a_key_are_refused(recipe):
    recipe["student"]["start"] = "elsewhere"
    with pytest.raises(LimbeckError, match="start and init_from are the same key; drop start"):
        load_recipe(recipe)
