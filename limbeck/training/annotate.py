"""Store teacher scores on disk: a stored pair is never scored again, and no score is lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck import __version__
from limbeck.data import Qrels, RankingData, Run, Texts, load, write_scores
from limbeck.data.by_kind import require_ranking
from limbeck.data.queries import distinct, read_queries, text_key
from limbeck.errors import LimbeckError, bad_input, did_you_mean
from limbeck.evaluation import candidate_run, first_of, with_judged
from limbeck.evaluation.candidates import ALL, GIVEN
from limbeck.files import digest, write_json
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.progress import say
from limbeck.sealed import opened, seal
from limbeck.stores import ScoreStore, score_with_store
from limbeck.stores.append_log import AppendLog

SHAPES = ("trec", "sentence-transformers", "pylate", "flagembedding")  # formats of exported scores
BLOCK = 512  # number of pairs that a crash can lose
QUERIES = "queries.jsonl"  # in the store: digests of the query texts


def teacher_identity(teacher: Matcher, data: RankingData) -> dict[str, Any]:
    """The teacher and the texts of some scores; with ids only, an edited corpus would get the scores of the old one."""
    return {**teacher.identity(), "documents": data.corpus.content_digest}


def note_teacher(folder: Path, teacher: str, revision: str | None) -> None:
    """Information for people about who made the scores. The manifest is used for checks."""
    write_json(folder / "teacher.json", {"teacher": teacher, "revision": revision, "limbeck": __version__})


def annotate(
    teacher: Matcher,
    data: RankingData,
    candidates: Mapping[str, Sequence[str]],
    store: ScoreStore,
    batch_size: int = 32,
) -> int:
    """Score every candidate of every query that is not in `store` yet; returns how many pairs were scored."""
    _refuse_edited_queries(store, data, candidates)

    def score(pairs: list[tuple[str, str]]) -> np.ndarray:
        texts = data.corpus.take(data.corpus.rows([document for _, document in pairs]))
        queries = data.queries.take(data.queries.rows([query for query, _ in pairs]))
        return teacher.score(list(zip(queries, texts, strict=True)), batch_size)

    total = sum(len(documents) for documents in candidates.values())
    return score_with_store(store, candidates.items(), score, BLOCK, total)


def _refuse_edited_queries(store: ScoreStore, data: RankingData, query_ids: Iterable[str]) -> None:
    """Refuse edited queries. Queries may change, so they are not part of the identity; each is checked by its text."""
    ids = list(query_ids)
    said = dict(zip(ids, map(digest, data.queries.take(data.queries.rows(ids))), strict=True))
    path = store.path / QUERIES
    known = _queries_scored(path)
    edited = next((query for query in ids if known.get(query, said[query]) != said[query]), None)
    if edited is not None:
        problem = f"{store.path}: query {edited!r} has changed since it was scored"
        raise LimbeckError(f"{problem}; give the new text a different id, or delete {store.path}")
    if new := [query for query in ids if query not in known]:
        with store.writing():
            AppendLog(path).append(seal({"_id": query, "digest": said[query]}) for query in new)


def _queries_scored(path: Path) -> dict[str, str]:
    """Query id -> digest of its text. A line that is incomplete, after a kill or during a write, is skipped; a damaged
    line is left out, and written again when its query is needed.
    """
    whole = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []
    records = filter(None, map(_record, whole))
    return {record["_id"]: record["digest"] for record in records if {"_id", "digest"} <= set(record)}


def _record(line: str) -> dict[str, Any] | None:
    try:
        return opened(json.loads(line))
    except json.JSONDecodeError:
        return None


@dataclass(frozen=True)
class Annotated:
    """What `annotate_data` did."""

    store: ScoreStore
    data: RankingData
    judged: Qrels  # judgements of all splits
    queries: int
    scored: int  # pairs scored in this call


def annotate_data(
    teacher: str,
    source: str,
    out: Path,
    split: str = "train",
    queries: Path | None = None,
    candidates: str = "bm25",
    depth: int = 100,
    revision: str | None = None,
    batch_size: int = 32,
    bf16: bool = False,
    shape: str | None = None,
) -> Annotated:
    """Score the candidates and the judged documents of a split's queries, and of extra unlabelled queries.

    `shape` is the format of the export; a problem with it is reported before hours of scoring.
    """
    data = require_ranking(load(source), source)
    extra: list[str] = []
    if queries is not None:
        data, extra = with_queries(data, queries, every=True)
    if split == ALL or not data.qrels:
        query_ids = list(data.queries)
    elif candidates == GIVEN and split in data.runs and split not in data.qrels:
        query_ids = [*data.candidates(split), *extra]
    else:
        query_ids = [*data.judgements(split), *extra]
    judged: dict[str, dict[str, int]] = {}
    for grades in data.qrels.values():
        for query, found in grades.items():
            judged[query] = judged.get(query, {}) | dict(found)
    run = candidate_run(data, query_ids, candidates, split, depth)
    lists = with_judged(first_of(run, query_ids, depth), judged)
    matcher = load_matcher(teacher, revision, bf16)
    store = ScoreStore.open(out, teacher_identity(matcher, data), matcher.outputs)
    if shape is not None:
        _refuse_export(store, data, shape)
    scored = annotate(matcher, data, lists, store, batch_size)
    note_teacher(out, teacher, revision)
    return Annotated(store, data, judged, len(query_ids), scored)


def export_shape(shape: str | None, export: str | Path | None, top: int | None) -> str | None:
    """The format of the export, or None."""
    if shape is not None and shape not in SHAPES:
        raise LimbeckError(f"unknown --shape {shape!r}; {did_you_mean(shape, list(SHAPES))}")
    if shape is not None and export is None:
        raise LimbeckError("--shape requires --export; add --export FILE")
    return (shape or SHAPES[0]) if export is not None or top is not None else None


def export_scores(done: Annotated, path: Path, shape: str, top: int | None = None) -> None:
    """Write the scores of a store to a file; `top` keeps the best of each query and its positives."""
    run = done.store.to_run()
    run = top_by_teacher(run, done.judged, top) if top is not None else run
    write_scores(run, path, shape, done.data)


def _refuse_export(store: ScoreStore, data: RankingData, shape: str) -> None:
    """Check that everything in the store can be exported, with its texts if the format needs them."""
    if store.outputs != 1:
        problem = f"the teacher gives {store.outputs} scores per pair, but an export needs a single score"
        raise LimbeckError(f"{problem}; leave out --export and --top")
    gone = next((query for query in _queries_scored(store.path / QUERIES) if query not in data.queries), None)
    if shape != "trec" and gone is not None:
        problem = f"{store.path}: has scores of query {gone!r}, but {data.name} does not have its text"
        raise LimbeckError(f"{problem}; give its file with --queries, or export with --shape trec")


def with_queries(data: RankingData, path: Path | str, every: bool = False) -> tuple[RankingData, list[str]]:
    """The data with the unlabelled queries of a file added, and their ids.

    Unless `every` query is requested, repeated queries and those that are in the data already are left out: a query of
    the test split must not become a training query.
    """
    extra = read_queries(path)
    known = next((key for key in extra if key in data.queries), None)
    if known is not None:
        raise bad_input(path, f"query {known!r} is already in the data set", "give unlabelled queries different ids")
    if not every:
        extra = _unknown(distinct(extra, path), data, path)
    both = Texts.build((key, "", text) for texts in (data.queries, extra) for key, text in texts.items())
    return replace(data, queries=both), list(extra)


def _unknown(extra: Texts, data: RankingData, path: Path | str) -> Texts:
    """The queries that are not in the data."""
    own = {text_key(text) for _, text in data.queries.items()}
    new = {key: text for key, text in extra.items() if text_key(text) not in own}
    if not new:
        problem = f"all of its queries are already in {data.name}"
        raise bad_input(path, problem, "give other queries, or leave data.unlabelled out")
    if len(new) == len(extra):
        return extra
    say(f"{path}: {len(extra) - len(new):,} of {len(extra):,} queries are already in the data set and are left out")
    return Texts.from_dict(new)


def top_by_teacher(run: Run, positives: Mapping[str, Mapping[str, int]], k: int) -> Run:
    """Each query's K documents with the highest teacher score. Judged positives are always kept; the others fill up."""
    kept: Run = {}
    for query, scores in run.items():
        judged = positives.get(query, {})
        ranked = sorted(scores, key=lambda document: (judged.get(document, 0) <= 0, -scores[document], document))
        count = max(k, sum(judged.get(document, 0) > 0 for document in scores))
        kept[query] = {document: scores[document] for document in ranked[:count]}
    return kept
