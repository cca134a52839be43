import hashlib
import os
import subprocess
import sys

import pytest

from limbeck.data import all_pydocs, load
from limbeck.data.dataset import RankingData
from limbeck.data.docstrings import Docstring
from limbeck.data.package_docstrings import Package
from limbeck.data.pydocs import load_pydocs, split_of, summary_and_rest

FINGERPRINT = """
import hashlib
{first}
from limbeck.data.pydocs import load_pydocs
data = load_pydocs()
lines = [f"{{i}}\\t{{data.queries[i]}}" for i in data.queries] + [f"{{i}}\\t{{data.corpus[i]}}" for i in data.corpus]
print(hashlib.sha256("\\n".join(lines + [repr(data.qrels)]).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def pydocs() -> RankingData:
    return load_pydocs()


def words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text.lower()).split()


def fingerprint(first: str, hash_seed: str) -> str:
    command = [sys.executable, "-c", FINGERPRINT.format(first=first)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
    )
    return done.stdout.strip()


def test_splits_are_large_enough_to_train_on_and_to_compare_methods(pydocs: RankingData) -> None:
    sizes = {split: len(judged) for split, judged in pydocs.qrels.items()}
    assert sizes["train"] >= 900
    assert sizes["dev"] >= 150
    assert sizes["test"] >= 300
    assert len(pydocs.corpus) >= 2250
    assert sum(sizes.values()) == len(pydocs.queries)


def test_every_query_has_one_document_that_is_in_the_corpus(pydocs: RankingData) -> None:
    for judged in pydocs.qrels.values():
        for query_id, grades in judged.items():
            assert query_id in pydocs.queries
            ((document_id, grade),) = grades.items()
            assert (query_id, grade) == (f"q:{document_id}", 1)
            assert document_id in pydocs.corpus


def test_no_package_is_in_two_splits(pydocs: RankingData) -> None:
    splits: dict[str, set[str]] = {}
    for split, judged in pydocs.qrels.items():
        for grades in judged.values():
            (name,) = grades
            if not name.startswith("numpy") and "." in name:
                splits.setdefault(name.split(".")[0], set()).add(split)
    shared = {package for package, where in splits.items() if len(where) > 1}
    assert shared == set()
    assert len(splits) > 100


def test_numpy_is_one_group_but_for_its_packages_of_another_subject() -> None:
    assert split_of("numpy.ma") == split_of("numpy") == split_of("numpy.lib.recfunctions") == split_of("numpy.strings")
    assert split_of("numpy.random._generator") == split_of("numpy.random")
    assert {split_of(f"package{n}") for n in range(50)} == {"train", "dev", "test"}


def test_no_two_queries_and_no_two_documents_say_the_same(pydocs: RankingData) -> None:
    queries = [" ".join(words(pydocs.queries[i])) for i in pydocs.queries]
    documents = [" ".join(words(pydocs.corpus[i])) for i in pydocs.corpus]
    assert len(set(queries)) == len(queries)
    assert len(set(documents)) == len(documents)


def test_near_copies_are_left_out(pydocs: RankingData) -> None:
    """A sample against all others by brute force."""
    sets = [frozenset(words(pydocs.corpus[i])) for i in pydocs.corpus]
    for row in range(0, len(sets), 60):
        similarity = [len(sets[row] & other) / len(sets[row] | other) for other in sets]
        assert sum(value >= 0.8 for value in similarity) == 1


def test_queries_are_short_and_documents_neither_repeat_them_nor_are_empty(pydocs: RankingData) -> None:
    for judged in pydocs.qrels.values():
        for query_id, grades in judged.items():
            (document_id,) = grades
            query, document = words(pydocs.queries[query_id]), words(pydocs.corpus[document_id].partition("\n")[2])
            assert 3 <= len(query) <= 30
            assert len(document) >= 8
            assert " ".join(query) not in " ".join(document)


def test_private_names_tests_and_titles_stay_out(pydocs: RankingData) -> None:
    for name in pydocs.corpus:
        assert pydocs.corpus.title(name) == ""
        for part in name.split("."):
            assert not part.startswith("_") or part.endswith("__"), name
            assert part not in ("tests", "idlelib", "lib2to3", "f2py")


def test_users_find_familiar_functions_under_the_names_they_type(pydocs: RankingData) -> None:
    assert "follow_symlinks" in pydocs.corpus["shutil.copyfile"]
    assert pydocs.queries["q:shutil.copyfile"].startswith("Copy data from src to dst")
    for name in ("numpy.clip", "isinstance", "os.set_blocking", "json.loads", "os.rename"):
        assert name in pydocs.corpus


def test_the_same_installation_gives_the_same_data_after_any_imports() -> None:
    plain = fingerprint("", hash_seed="1")
    assert len(plain) == len(hashlib.sha256().hexdigest())
    assert fingerprint("import asyncio, json, sklearn", hash_seed="2") == plain


def test_source_docstrings_are_read_without_importing(pydocs: RankingData) -> None:
    code = "import sys, limbeck.data.docstrings as d; list(d.docstrings()); print('turtle' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert "turtle.TurtleScreen.clear" in pydocs.corpus


def test_signature_lines_are_left_out_and_the_first_sentence_becomes_the_summary() -> None:
    text = "settimeout(timeout)\n\nSet a timeout on socket operations.  'timeout' can be a float,\ngiving in seconds."
    assert summary_and_rest(text) == (
        "Set a timeout on socket operations.",
        "'timeout' can be a float,\ngiving in seconds.",
    )


def test_a_signature_over_several_lines_is_left_out() -> None:
    text = "offset(\n    dates,\n    roll='raise',\n)\n\nShift some dates.\n\nDates are shifted by business days."
    assert summary_and_rest(text) == ("Shift some dates.", "Dates are shifted by business days.")


def test_a_single_paragraph_or_a_bare_signature_gives_nothing() -> None:
    assert summary_and_rest("Return the sum.\nIt is a number.") is None
    assert summary_and_rest("sum(x) -> number\n\nsum(x, y) -> number") is None


def test_prose_comes_before_parameters_and_links_to_others_go() -> None:
    text = (
        "Add things.\n\nParameters\n----------\na : int\n    A number.\n\nSee Also\n--------\nsubtract : Take away.\n\n"
        "Notes\n-----\nAddition commutes.\n\nReferences\n----------\n.. [1] Euclid.\n"
    )
    assert summary_and_rest(text) == ("Add things.", "Addition commutes.\n\nParameters\na : int\n    A number.")


@pytest.fixture
def package(tmp_path):
    """A package as many are built: code in private modules, public names in `__init__` files."""
    files = {
        "__init__.py": '"""Sums and\n\nproducts."""\nfrom .maths import total\nfrom ._tools import *\n',
        "_tools.py": '__all__ = ["tool"]\ndef tool():\n    """A tool."""\ndef hidden():\n    """Hidden."""\n',
        "maths/__init__.py": "from ._sums import total\nfrom ..maths._products import Product as Product\n",
        "maths/_sums.py": 'def total():\n    """The total."""\ndef helper():\n    """A helper."""\n',
        "maths/_products.py": 'class Product:\n    """A product."""\n    def of(self):\n        """Of two."""\n',
        "maths/open.py": 'def left():\n    """Left open."""\n',
        "tests/__init__.py": 'def test():\n    """A test."""\n',
        "broken/no_package.py": 'def lost():\n    """Not in a package."""\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Package("sums", tmp_path)


def test_what_packages_export_has_its_shortest_public_name_and_private_objects_are_left_out(package) -> None:
    found = {docstring.name: docstring for docstring in package.docstrings()}
    public = ["sums", "sums.tool", "sums.maths.Product", "sums.maths.Product.of", "sums.total", "sums.maths.open.left"]
    assert sorted(found) == sorted(public)
    assert found["sums.total"] == Docstring("sums.maths._sums", "sums.total", "The total.")


def test_all_pydocs_contains_packages_and_comes_from_the_cache_the_second_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    monkeypatch.setattr(all_pydocs, "docstrings", lambda: iter([DOCSTRING]))
    monkeypatch.setattr(all_pydocs, "package_docstrings", lambda: iter([PACKAGED]))
    made = load("pydocs:all")
    assert list(made.corpus) == ["shutil.copyfile", "scipy.optimize.minimize"] and made.name == "pydocs:all"
    monkeypatch.setattr(all_pydocs, "docstrings", lambda: pytest.fail("read again"))
    again = load("pydocs:all")
    assert dict(again.corpus.items()) == dict(made.corpus.items()) and again.qrels == {
        split: own for split, own in made.qrels.items() if own
    }
    (corpus,) = tmp_path.rglob("corpus.jsonl")
    corpus.write_text(corpus.read_text().replace("copies", "moves"))  # damaged: it is made again
    monkeypatch.setattr(all_pydocs, "docstrings", lambda: iter([DOCSTRING]))
    assert dict(load("pydocs:all").corpus.items()) == dict(made.corpus.items())


DOCSTRING = Docstring(
    "shutil", "shutil.copyfile", "Copy data from src to dst.\n\nIt copies the contents of one file to another one."
)
PACKAGED = Docstring(
    "scipy.optimize._minimize",
    "scipy.optimize.minimize",
    "Minimization of scalar function of one or more variables.\n\nThe method and its options are given by arguments.",
)


def test_modules_of_a_part_of_a_package_share_a_split() -> None:
    parts = ["scipy.optimize._minimize", "scipy.optimize._root", "scipy.optimize.elementwise"]
    assert len({split_of(module) for module in parts}) == 1
    groups = [f"sklearn.{part}._base" for part in "linear_model cluster svm tree ensemble metrics neighbors".split()]
    assert len({split_of(module) for module in groups}) > 1
