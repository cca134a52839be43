from __future__ import annotations

from itertools import pairwise

import pytest
import yaml

from limbeck.errors import LimbeckError
from limbeck.recipe.files import load_recipe, set_value, shipped, write_recipe

TEXT = """\
name: mine
data:
  source: pydocs
teacher:
  model: some/teacher
student:
  layers: 2
stages:
  - objectives: [softmax_ce(tau=2)]
    steps: 10
"""


def write(tmp_path, text: str):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("    steps: 10", "    stepz: 10", 10, "stages.0.stepz: unknown key; did you mean 'steps'?"),
        (
            "softmax_ce(tau=2)",
            "softmax_c",
            9,
            "stages.0.objectives: unknown objective 'softmax_c'; did you mean 'softmax_ce'?",
        ),
        ("softmax_ce(tau=2)", "softmax_ce(tau=-1)", 9, "stages.0.objectives: softmax_ce: tau=-1 is not allowed"),
        ("  layers: 2", "  layers: two", 7, "student.layers: 'two' is neither a number of layers nor a list of them"),
        ("  layers: 2", "  layer: 2", 7, "student.layer: unknown key; did you mean 'layers'?"),
        ("data:\n  source: pydocs", "data: {}", 2, "data.source: is missing; add it"),
        ("    steps: 10", "", 9, "stages.0: give either steps or epochs"),
        (
            "teacher:\n  model: some/teacher\n",
            "",
            1,
            "stages.0 distils, but there is no teacher; add one, or use one_hot",
        ),
        ("  model: some/teacher", "  revision: main", 4, "teacher: give a model, a matcher to train, or scores"),
        ("    steps: 10", "    steps: 10\n    batch_size: 8\n    accumulate: 3", 9, "batch_size .8. is not a multiple"),
        ("    steps: 10", "    steps: 10\n    lists: {size: 9, pool: 4}", 11, "pool .4. is smaller than the lists"),
        ("    steps: 10", "    steps: [1", 11, "is not valid YAML"),
        (
            "  layers: 2\nstages:\n  - objectives: [softmax_ce(tau=2)]\n",
            "  kind: dipair\nstages:\n  - objectives: [softmax_ce(tau=2)]\n    token_dropout: 0.1\n",
            1,
            "stages.0.token_dropout: a dipair needs its first tokens; drop it",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_remedy(tmp_path, old, new, line, message):
    assert old in TEXT
    path = write(tmp_path, TEXT.replace(old, new))
    with pytest.raises(LimbeckError) as caught:
        load_recipe(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:{line}: "), text
    assert "\n" not in text
    import re

    assert re.search(message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?"), text), text


def test_a_missing_recipe_suggests_one_that_ships(tmp_path):
    with pytest.raises(LimbeckError, match="no such recipe; did you mean 'own-data'"):
        load_recipe("own-dat")


def test_overrides_reach_every_level_and_keep_the_original():
    values = yaml.safe_load(TEXT)
    changed = load_recipe(values, ["stages.0.steps=20", "student.layers=null", "evaluation.depth=7", "name=other"])
    assert (changed.stages[0].steps, changed.student.layers, changed.evaluation.depth) == (20, None, 7)
    assert changed.name == "other"
    assert values["stages"][0]["steps"] == 10


@pytest.mark.parametrize("override", ["stages.0.steps", "stages.5.steps=1", "name.x=1", "stages.first.steps=1", "a=[1"])
def test_an_override_that_leads_nowhere_is_refused(override):
    with pytest.raises(LimbeckError, match="--set"):
        set_value(yaml.safe_load(TEXT), override)


@pytest.mark.parametrize("objectives", [["m3se"], ["rank_distil"], ["margin_mse"], ["softmax_ce", "m3se"]])
def test_documents_of_other_queries_need_an_objective_that_can_use_them(objectives):
    """Stored scores know nothing of them: an objective that reads scores would leave all of them out."""
    values = yaml.safe_load(TEXT)
    values["stages"][0] |= {"objectives": objectives, "lists": {"in_batch": True}}
    with pytest.raises(LimbeckError, match="lists.in_batch: stored scores do not cover documents of other queries"):
        load_recipe(values)
    values["stages"][0]["objectives"] = [*objectives, "one_hot"]
    load_recipe(values)
    values["stages"][0]["objectives"] = objectives
    values["teacher"]["live"] = True
    load_recipe(values)


def a_run(folder, source: str, teacher: dict | None, trained: bool = True):
    """What a run leaves that another one wants to know."""
    (folder / "teacher").mkdir(parents=True)
    if trained:
        (folder / "teacher" / "model").mkdir()
    told = {"name": "first", "data": {"source": source}, "teacher": teacher}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(told))
    return folder


def test_a_teacher_by_name_is_a_model_or_that_of_a_run_with_its_scores(tmp_path):
    def taught_by(name: object):
        return load_recipe(yaml.safe_load(TEXT) | {"teacher": str(name)}).teacher

    assert (taught_by("some/model").model, taught_by("some/model").scores) == ("some/model", None)
    run = a_run(tmp_path / "same", "pydocs", {"train": {"kind": "cross_encoder"}})
    found = taught_by(run)
    assert (found.model, found.scores) == (str(run / "teacher" / "model"), str(run / "teacher" / "scores"))
    assert found.train is None and not found.stages
    other = a_run(tmp_path / "other", "elsewhere", {"train": {"kind": "cross_encoder"}})
    assert taught_by(other).scores is None  # of other texts
    given = a_run(tmp_path / "given", "pydocs", {"model": "some/teacher", "revision": "v1", "scores": "s"}, False)
    assert taught_by(given).model_dump(include={"model", "revision", "scores"}) == {
        "model": "some/teacher",
        "revision": "v1",
        "scores": "s",
    }
    changed = load_recipe(yaml.safe_load(TEXT), [f"teacher={run}"])  # over the command line
    assert changed.teacher == found


@pytest.mark.parametrize(
    ("teacher", "line"),
    [
        ({"train": {"kind": "cross_encoder"}}, "has not trained its teacher yet; run it first"),
        ({"scores": "x.trec"}, "has no teacher's model"),
        (None, "has no teacher's model"),
        ("damaged", "cannot be read; name a whole run, or a model"),
    ],
)
def test_a_run_without_a_teacher_to_share_is_refused_with_that_reason(tmp_path, teacher, line):
    run = a_run(tmp_path / "run", "pydocs", teacher, trained=False)
    if teacher == "damaged":
        (run / "recipe.yaml").write_text("data: [")
    with pytest.raises(LimbeckError, match=line):
        load_recipe(yaml.safe_load(TEXT) | {"teacher": str(run)})


def test_a_written_recipe_reads_back_the_same(tmp_path):
    recipe = load_recipe(write(tmp_path, TEXT))
    write_recipe(recipe, tmp_path / "resolved.yaml")
    assert load_recipe(tmp_path / "resolved.yaml") == recipe
    assert "max_grad_norm" in (tmp_path / "resolved.yaml").read_text()


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_is_valid_and_says_what_it_is(name):
    recipe = load_recipe(name)
    assert len(recipe.description) > 20
    assert recipe.name == name


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/b", "..", ".hidden", "", " ", "a\\b", "a\nb", "a\x1bb", "x" * 200]
)
def test_a_name_cannot_lead_out_of_runs(name):
    values = {"name": name, "data": {"source": "pydocs"}, "stages": [{"objectives": ["one_hot"], "steps": 1}]}
    with pytest.raises(LimbeckError, match="name: "):
        load_recipe(values)


ALPHABET = "abcdefghijklmnopqrstuvwxyz"
BOMB = "a: &a [x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise(ALPHABET))  # 2^25 of them in the end


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: " + "[" * 20_000 + "]" * 20_000, "nested too deeply"),
        ("data: {source: pydocs}\nseed: 2020-99-99\n", "month must be in 1..12"),
        ("seed: " + "9" * 5000, "Exceeds the limit"),
        ("seed: 1\0", "special characters"),
        ("data: {source: \"a\\0b\"}\nstages: [{objectives: [one_hot], steps: 1}]", "NUL"),
        (BOMB, "data: is missing"),
    ],
    ids=["nested", "date", "digits", "nul", "escaped-nul", "aliases"],
)  # fmt: skip
def test_yaml_that_python_cannot_represent_is_a_one_line_error(tmp_path, text, words):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(LimbeckError, match=words) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["2020-99-99", "9" * 5000, "[" * 20_000, "{"])
def test_invalid_yaml_and_a_missing_path_give_different_errors(value):
    values = {"data": {"source": "pydocs"}, "stages": [{"objectives": ["one_hot"], "steps": 1}]}
    with pytest.raises(LimbeckError, match="the value is not valid YAML"):
        load_recipe(values, [f"seed={value}"])
    with pytest.raises(LimbeckError, match="the recipe has no key stages.7.steps"):
        load_recipe(values, ["stages.7.steps=1"])


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"data.spans": 2}, "data.spans: no stage matches embeddings of queries, so it changes nothing; add a stage"),
        ({"data.unlabelled_documents": "more.txt"}, "no stage matches embeddings of documents, so it changes nothing"),
        (
            {"student.document": "teacher", "student.scale": None, "teacher": None},
            "student.document: teacher needs a teacher with a model",
        ),
    ],
)
def test_what_nothing_reads_is_refused(changes, line):
    overrides = [f"{key}={'null' if value is None else value}" for key, value in changes.items()]
    with pytest.raises(LimbeckError, match=line):
        load_recipe("defense-first-layers", [*overrides, "stages.0.objectives=[one_hot]"])


TEACHER = "teacher:\n  model: some/teacher\n"
TRAINED = "teacher: {train: {kind: cross_encoder, init_from: m}, stages: [{objectives: [one_hot], steps: 1}]}\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"  layers: 2": "  kind: cross_encoder\n  layers: auto:2"},
            "auto:2: a cross_encoder has no embedding to comp",
        ),
        ({"  layers: 2": "  kind: colbert\n  layers: auto"}, "auto: a colbert has no embedding to compare; give the l"),
        (
            {"  layers: 2": "  kind: colbert", "softmax_ce(tau=2)": "match_embeddings"},
            "match_embeddings needs one embedding of a text, and student is a colbert; use a dual_encoder, or other",
        ),
        (
            {"  layers: 2": "  document: teacher", TEACHER: TRAINED},
            "student.document: the teacher is a cross_encoder, which does not keep one vector of a text; train a d",
        ),
    ],
)
def test_models_without_one_embedding_of_a_text_are_refused_where_it_is_needed(tmp_path, changes, message):
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(LimbeckError) as found:
        load_recipe(write(tmp_path, text))
    assert message in str(found.value) and "\n" not in str(found.value)
