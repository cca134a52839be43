"""Runtimes are measured on the user's own texts wherever there are some."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limbeck.data.dataset import RankingData, Texts
from limbeck.errors import LimbeckError
from limbeck.runtimes import sample
from limbeck.runtimes.choice import measuring_on
from limbeck.runtimes.sample import DOCUMENTS, QUERIES, Sample, sample_at_hand, sample_of

WORDS = "how do i copy one file to a folder of another name".split()


def write_corpus(path: Path, count: int = 4) -> list[str]:
    texts = [" ".join([f"text-{number}", *WORDS]) for number in range(count)]
    path.write_text("".join(json.dumps({"_id": str(at), "text": text}) + "\n" for at, text in enumerate(texts)))
    return texts


@pytest.mark.parametrize("name", ["corpus.jsonl", "texts.txt"])
def test_a_file_of_texts_is_sampled_and_their_first_words_are_queries(name, tmp_path):
    texts = write_corpus(tmp_path / "corpus.jsonl")
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    found = sample_of(str(tmp_path / name))
    assert found.documents == texts and found.source == str(tmp_path / name) and found.judged is None
    assert found.queries == [f"text-{number} how do i copy one file to" for number in range(4)]


def test_a_folder_with_documents_alone_is_sampled(tmp_path):
    texts = write_corpus(tmp_path / "corpus.jsonl")
    assert sample_of(str(tmp_path)).documents == texts
    assert sample_of(str(tmp_path)).queries[0] == "text-0 how do i copy one file to"


def test_a_long_file_is_sampled_from_its_first_to_its_last_text(tmp_path):
    texts = write_corpus(tmp_path / "corpus.jsonl", 300)
    found = sample_of(str(tmp_path / "corpus.jsonl"))
    assert (len(found.documents), len(found.queries)) == (DOCUMENTS, QUERIES)
    assert found.documents[0] == texts[0] and found.documents[-1] == texts[-1]


def test_pairs_of_a_pair_file_stay_together(tmp_path):
    rows = [(f"query {number}", f"document {number}") for number in range(40)]
    file = tmp_path / "pairs.csv"
    file.write_text("text_a,text_b\n" + "".join(f"{left},{right}\n" for left, right in rows))
    found = sample_of(str(file))
    assert found.pairs() == rows
    assert len(found.queries) == QUERIES and found.documents == [right for _, right in rows]
    assert found.pairs(3)[0] == ("query 0", "document 0", "document 1")  # for a model that reads three texts


def test_without_pairs_every_document_has_a_query_in_turns():
    found = Sample(["a", "b"], ["x", "y", "z"], "these")
    assert found.pairs() == [("a", "x"), ("b", "y"), ("a", "z")]


def test_data_without_documents_are_refused_in_one_line(monkeypatch):
    nothing = RankingData("empty", Texts.build(()), Texts.from_dict({"q": "copy a file"}), {})
    monkeypatch.setattr(sample, "load", lambda name, needs_queries: nothing)
    with pytest.raises(LimbeckError, match="^empty: has no texts to measure on; give another data set$"):
        sample_of("empty")


def test_built_in_texts_serve_if_the_named_data_cannot_be_read(tmp_path):
    damaged = tmp_path / "corpus.jsonl"
    damaged.write_text("{not json\n")
    with pytest.raises(LimbeckError, match="corpus.jsonl:1: is not valid JSON"):
        sample_of(str(damaged))
    for source in (damaged, tmp_path / "absent", None):
        with measuring_on(source):
            found = sample_at_hand()
        assert found.source == "pydocs" and found.judged is None
        assert len(found.queries) == QUERIES and len(found.documents) == DOCUMENTS


def test_texts_of_the_command_are_preferred(tmp_path):
    texts = write_corpus(tmp_path / "corpus.jsonl")
    with measuring_on(tmp_path / "corpus.jsonl"):
        assert sample_at_hand().documents == texts
