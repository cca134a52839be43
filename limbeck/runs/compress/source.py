"""The data of a run, with spans of passages as queries if there are none, and what all recipes share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from limbeck.data import RankingData, load
from limbeck.data.by_kind import require_ranking
from limbeck.data.lines import bare_suffix, plain_or_gz
from limbeck.data.passages import load_passages
from limbeck.data.queries import text_key
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.files import directory_atomically, write_atomically
from limbeck.generation.spans import Spans
from limbeck.progress import say

MOST_SPANS = 20_000  # of passages, as queries
FEWEST_DOCUMENTS = 2
SPANS = 4_000  # texts that a small corpus is made into


def with_queries(source: str, folder: Path, seed: int) -> tuple[str, RankingData, str | None]:
    """The name of a data set with queries, the data, and a warning; it is written to `folder` if the user has none."""
    path = Path(source).expanduser()
    alone = path.is_dir() and plain_or_gz(path / "corpus.jsonl") and not plain_or_gz(path / "queries.jsonl")
    corpus_file = plain_or_gz(path / "corpus.jsonl") if alone else path if _is_passages(path) else None
    if corpus_file is None:
        found = require_ranking(load(source), source, remedy="compress needs documents to search; give a corpus")
        _require_enough(source, found)
        return source, found, None
    place = folder / "data"
    corpus = load_passages(corpus_file, with_fields=False).corpus
    if len(corpus) < FEWEST_DOCUMENTS:
        raise _too_few(source, len(corpus))
    if not (place / "queries.jsonl").is_file():
        _write(place, corpus, seed)
    found = require_ranking(load(place), str(place))
    if found.corpus.content_digest != corpus.content_digest:
        raise LimbeckError(f"{folder}: contains a run with other texts under the same names; choose another --out")
    _require_enough(str(place), found)
    line = f"there are no queries, so {len(found.queries):,} spans of passages serve as queries; real ones are better"
    return str(place), found, line


def _is_passages(path: Path) -> bool:
    """Whether a file contains passages only: lines with a `text` and without a second text."""
    if not path.is_file() or bare_suffix(path) not in (".jsonl", ".tsv"):
        return False
    if bare_suffix(path) == ".tsv":
        return path.name.startswith("collection")
    with path.open(encoding="utf-8", errors="replace") as handle:
        first = handle.readline()
    try:
        record = json.loads(first)
    except ValueError:
        return False
    return isinstance(record, dict) and "text" in record and "_id" in record and "query" not in record


def _require_enough(source: str, data: RankingData) -> None:
    if len(data.corpus) < FEWEST_DOCUMENTS:
        raise _too_few(source, len(data.corpus))


def _too_few(source: str, count: int) -> LimbeckError:
    noun = "document" if count == 1 else "documents"
    return LimbeckError(f"{source}: has {count} {noun}, which cannot be ranked; give at least {FEWEST_DOCUMENTS}")


def _write(place: Path, corpus: Texts, seed: int) -> None:
    """A BEIR folder with the corpus and spans of its passages as queries."""
    per_document = max(1, min(8, SPANS // len(corpus)))
    say("no queries: taking spans of passages")
    records = [corpus.record_at(row) for row in range(min(len(corpus), MOST_SPANS))]
    drawn = Spans(per_document, seed).write(records)
    texts = {text_key(text): text for spans in drawn for text in spans if text.strip()}
    with directory_atomically(place) as made:
        with write_atomically(made / "corpus.jsonl", "w") as handle:
            for row in range(len(corpus)):
                key, title, text = corpus.record_at(row)
                handle.write(json.dumps({"_id": key, "title": title, "text": text}, ensure_ascii=False) + "\n")
        with write_atomically(made / "queries.jsonl", "w") as handle:
            for number, text in enumerate(texts.values()):
                handle.write(json.dumps({"_id": f"span-{number}", "text": text}, ensure_ascii=False) + "\n")


def base_recipe(
    teacher: dict[str, Any],
    source: str,
    data: RankingData,
    searches: bool,
    depth: int,
    seed: int,
    scored: int | None,
    texts: int | None = None,
) -> dict[str, Any]:
    """The parts of a recipe that all students share.

    `scored` limits the training queries that a teacher scores, `texts` the queries and spans that it embeds.
    """
    labelled = any(grade > 0 for grades in data.qrels.get("test", {}).values() for grade in grades.values())
    asks: dict[str, Any] = {"source": source, "dev_queries": 100, "test_queries": 1000 if searches else 300}
    asks["spans"] = max(1, min(8, SPANS // max(1, len(data.corpus))))
    asks |= {} if labelled and "model" in teacher else {"held_out": 200}
    asks |= {} if searches else {"train_queries": scored}
    if texts is not None:
        asks["train_queries"] = min(texts, len(data.queries))
        asks["spans"] = min(asks["spans"], max(0, texts - len(data.queries)) // max(1, len(data.corpus)))
    evaluation = {
        "task": "retrieve" if searches else "rerank", "depth": depth, "dev_depth": 20, "measures": ["ndcg@10"],
        "baselines": ["bm25"], "analyses": [],
    }  # fmt: skip
    return {"data": asks, "teacher": teacher, "evaluation": evaluation, "seed": seed}
