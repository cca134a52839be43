"""The schema and the page of keys come from the typed models, and the page in docs/ is the one they give."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from limbeck.matchers.config import architectures
from limbeck.recipe.files import read_recipe, shipped
from limbeck.recipe.schema import keys_page, recipe_schema

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_keys_is_up_to_date():
    assert (DOCS / "recipe-keys.md").read_text() == keys_page(), "run `limbeck recipes --keys > docs/recipe-keys.md`"


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_fits_the_schema(name):
    Draft202012Validator(recipe_schema()).validate(read_recipe(name)[1])


@pytest.mark.parametrize(
    "student", [{"kind": "dipair", "scale": 20}, {"kind": "colbert", "dim": "many"}, {"kind": "dual_encoder", "no": 1}]
)
def test_the_schema_refuses_what_a_recipe_refuses(student):
    values = {**read_recipe("defense-laptop")[1], "student": student}
    assert not Draft202012Validator(recipe_schema()).is_valid(values)


def test_every_key_of_every_kind_is_on_the_page():
    page = keys_page()
    for kind, found in architectures().items():
        assert f"### `kind: {kind}`" in page
        assert all(f"| `{key}` |" in page for key in found.config_type.model_fields)
