"""Everything that is known before students are trained: the task, the held-out queries, the candidates."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from limbeck.data import Qrels, RankingData
from limbeck.errors import LimbeckError
from limbeck.files import checksum, digest
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.progress import say
from limbeck.recipe.files import write_recipe
from limbeck.runs.compress.candidates import Candidate, Start, of_dual_encoder, of_scores
from limbeck.runs.compress.exam import TOP, Exam
from limbeck.runs.compress.source import base_recipe, with_queries
from limbeck.runs.open_task import open_task
from limbeck.runs.reference import has_one_vector
from limbeck.runtimes.auto import use_default
from limbeck.runtimes.choice import measuring_on
from limbeck.sealed import read_sealed, write_sealed
from limbeck.stores.manifest import canonical

PLAN = "compress.json"
DEPTH = 30  # candidates of a query that a re-ranker orders
FEW_QUERIES = 50  # held out
POOL = 16  # candidates of a training query that a teacher scores
MANY_KNOWN = 0.2  # of the documents that are relevant in test
FEWEST_TEXTS, SAMPLE = 2000, 256  # to train on; to time a teacher with
SCORED, TESTED = (100, 1000), (50, 300)  # least and most queries for training and for test, if a teacher re-ranks


@dataclass(frozen=True)
class Request:
    """What a user asks for, without budgets: these may change when a run is called again."""

    teacher: str
    data: str
    vectors: str | None = None  # an index or a file
    start: str | None = None  # of students that learn scores; MiniLM by default
    seed: int = 0
    length: int | None = None  # tokens of a text that the teacher reads; as many as it can by default

    @property
    def students_start(self) -> str:
        return self.start or "minilm"


@dataclass
class Setting:
    """The task of a run, with its teacher loaded."""

    request: Request
    task: Any  # a ranking task
    data: RankingData
    teacher: Matcher | None  # None if there are only scores
    candidates: list[Candidate]
    dev: Exam
    test: Exam

    @property
    def searches(self) -> bool:
        return self.test.candidates is None


def is_scores(name: str) -> bool:
    """Whether a teacher is a file of scores, or a folder that `limbeck annotate` wrote."""
    path = Path(name).expanduser()
    return path.is_file() or ((path / "shards").is_dir() and (path / "manifest.json").is_file())


def prepare(request: Request, folder: Path, minutes: float | None) -> Setting:
    """Read data and teacher, choose the candidates, and claim the folder. Mistakes are found here."""
    known = _known_plan(folder, request)
    scores = is_scores(request.teacher)
    if request.vectors is not None and scores:
        raise LimbeckError("--index and --vectors need a teacher that is a model, not scores; drop one of them")
    if request.length is not None and scores:
        raise LimbeckError("--length is for a teacher that is a model, not scores; drop it")
    matcher = None if scores else load_teacher(request)
    searches = matcher is not None and has_one_vector(matcher)
    if request.vectors is not None and not searches:
        raise LimbeckError(f"{request.teacher}: has no document vectors to keep; drop --index and --vectors")
    if request.start is not None and searches:
        raise LimbeckError(
            "--start is for students of a re-ranker or of scores; students of this teacher start from it"
        )
    if matcher is not None and matcher.outputs != 1:
        raise LimbeckError(f"{request.teacher}: gives {matcher.outputs} scores per pair; rankings need one")
    start = Start.of(request.teacher if searches else request.students_start)
    source, data, warning = with_queries(request.data, folder, request.seed)
    if matcher is not None:
        _speed_up(matcher, request, data)
    content = _content(request, matcher, data)
    if known is not None:
        _require_same(folder, known["content"], content)
    sizes = known or {**_sizes(matcher, data, searches, minutes), "content": content}
    teacher: dict[str, Any] = {"scores": request.teacher} if scores else {"model": request.teacher}
    teacher |= {"length": request.length} if request.length is not None else {}
    teacher |= {"vectors": request.vectors} if request.vectors is not None else {}
    teacher |= {} if searches else {"standardise": "global"}
    depth = TOP if searches else DEPTH
    base = base_recipe(teacher, source, data, searches, depth, request.seed, sizes["scored"], sizes["texts"])
    base["data"]["test_queries"] = sizes["tested"]
    texts = (_training_texts(data, base), len(data.corpus))
    if searches:
        labelled = len(data.qrels.get("train", {}))
        labelled = min(labelled, base["data"].get("train_queries") or labelled)
        found = list(of_dual_encoder(base, texts, start, request.vectors is not None, labelled))
    else:
        found = list(of_scores(base, texts, sizes["scored"] or len(data.queries), start))
    task: Any = open_task(found[0].recipe, folder)
    task.warn(warning)
    dev, test = _exams(task, searches, scores)
    if any(candidate.without_labels for candidate in found):
        task.warn(known_answers(data.qrels.get("train", {}), test.labels))
    if len(test.queries) < FEW_QUERIES:
        told = f"students are compared on {len(test.queries)} queries, so differences may be chance"
        task.warn(f"{told}; hundreds are better")
    task.reference.check_given()
    task.teacher = matcher
    if known is None:
        write_sealed(folder / PLAN, asdict(request) | sizes)
    try:
        task.reference.read_given()
    except LimbeckError:
        if known is None:  # a mistake claims no folder
            (folder / PLAN).unlink()
            shutil.rmtree(folder / "teacher", ignore_errors=True)
        raise
    write_recipe(found[0].recipe, folder / "recipe.yaml")
    return Setting(request, task, data, matcher, found, dev, test)


def _known_plan(folder: Path, request: Request) -> dict[str, Any] | None:
    """The sizes of an earlier run of the same request in this folder; refuse a folder of something else."""
    place = folder / PLAN
    if not place.exists():
        if any(path.name != "data" for path in folder.iterdir()):
            raise LimbeckError(f"{folder}: is not empty and contains no run of compress; choose another --out")
        return None
    found = read_sealed(place)
    for key, ours in asdict(request).items():
        if found.get(key) != ours:
            problem = f"contains a run with another {key} ({found.get(key)!r} there, {ours!r} here)"
            raise LimbeckError(f"{folder}: {problem}; choose another --out, or remove it")
    return {key: found.get(key) for key in ("scored", "tested", "texts", "content")}


def _content(request: Request, matcher: Matcher | None, data: RankingData) -> str:
    """A digest of the weights of teacher and start, or of given scores, and of all texts and labels."""
    teacher = str(matcher.identity()) if matcher is not None else _contents(request.teacher)
    start = "" if matcher is not None and has_one_vector(matcher) else _contents(request.students_start)
    texts = data.corpus.content_digest, data.queries.content_digest
    return digest(teacher, start, *texts, canonical(data.qrels))


def _contents(name: str) -> str:
    """The checksums of a file, or of the files in a folder; a name that is neither stays as it is."""
    path = Path(name).expanduser()
    if not path.exists():
        return name
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return " ".join(checksum(file) for file in files)


def _require_same(folder: Path, before: str, content: str) -> None:
    if before != content:
        problem = "contains a run with other texts, labels, scores or weights under the same names"
        raise LimbeckError(f"{folder}: {problem}; choose another --out, or remove it")


def load_teacher(request: Request) -> Matcher:
    """The teacher, reading as many tokens as it should."""
    matcher = load_matcher(request.teacher)
    if request.length is not None:
        matcher.limit_tokens(request.length)
    return matcher


def _speed_up(matcher: Matcher, request: Request, data: RankingData) -> None:
    """Run the teacher in its fastest float32 runtime: its work may be half of a run."""
    texts = len(data.queries) + (0 if request.vectors is not None else len(data.corpus))
    with measuring_on(request.data, lambda it: texts if encodes_apart(it) else POOL * len(data.queries)):
        use_default(matcher, single=False)


def _sizes(matcher: Matcher | None, data: RankingData, searches: bool, minutes: float | None) -> dict[str, Any]:
    """How many texts a teacher can read in the time.

    One that re-ranks scores queries: for a quarter of the time those for training, for a tenth those for test. One with
    vectors embeds training texts for an eighth of the time.
    """
    sizes = {"scored": None, "tested": 1000, "texts": None}
    if matcher is None or (searches and minutes is None):
        return sizes
    if searches:
        assert minutes is not None
        return sizes | {"texts": max(FEWEST_TEXTS, int(60 * minutes / 8 / _seconds_per_query(matcher, data)))}
    pairs = [(text, data.corpus[key]) for (_, text), key in zip(data.queries.items(), data.corpus, strict=False)][:32]
    matcher.score(pairs[:4])
    began = time.monotonic()
    matcher.score(pairs)
    each = (time.monotonic() - began) / len(pairs)
    seconds = float("inf") if minutes is None else 60 * minutes
    scored = min(max(seconds / 4 / (POOL * each), SCORED[0]), SCORED[1])
    tested = min(max(seconds / 10 / (3 * DEPTH * each), TESTED[0]), TESTED[1])
    say(f"the teacher scores a pair in {1000 * each:.1f} ms: {scored:.0f} queries to train on, {tested:.0f} to test")
    return sizes | {"scored": int(scored), "tested": int(tested)}


def _seconds_per_query(matcher: Any, data: RankingData) -> float:
    """The time that a teacher needs to embed a query, in batches."""
    queries = data.queries.take(range(min(len(data.queries), SAMPLE)))
    matcher.encode(queries[:4], 0)
    began = time.monotonic()
    matcher.encode(queries, 0)
    return (time.monotonic() - began) / len(queries)


def known_answers(train: Qrels, test: Qrels) -> str | None:
    """A warning if many documents that are relevant for test queries were relevant in training as well."""
    known, asked = (
        {document for grades in labels.values() for document, grade in grades.items() if grade > 0}
        for labels in (train, test)
    )
    part = len(asked & known) / max(len(asked), 1)
    if part < MANY_KNOWN:
        return None
    told = f"{part:.0%} of the documents that are relevant for test queries are relevant for training queries as well"
    return f"{told}: for documents without labels, expect less of students that learn from labels"


def _training_texts(data: RankingData, base: dict[str, Any]) -> int:
    most = base["data"].get("train_queries")
    queries = len(data.queries) if most is None else min(len(data.queries), most)
    return queries + base["data"]["spans"] * len(data.corpus)


def _exams(task: Any, searches: bool, scores: bool) -> tuple[Exam, Exam]:
    """Queries to choose on and queries to report on. If there are only scores, both are queries that have some."""
    splits = task.splits
    dev, test, labels = splits.dev, splits.test, splits.dev_labels | splits.test_labels
    if scores or not test:
        labels = task.data.qrels.get(task.recipe.data.train, {}) | splits.dev_labels
        test = splits.held_out
    if scores:
        known = [query for query in splits.held_out if query in task.given_scores]
        dev, test = known[::2], known[1::2]
    for queries in (dev, test):
        if len(queries) < 2:
            there = f"{len(queries)} {'query' if len(queries) == 1 else 'queries'}"
            remedy = "annotate more queries" if scores else "give more, or corpus.jsonl alone: then spans of it serve"
            raise LimbeckError(f"{task.data.name}: only {there} left to compare students on; {remedy}")
    return _exam(task, dev, labels, searches, scores), _exam(task, test, labels, searches, scores)


def _exam(task: Any, queries: list[str], labels: Qrels, searches: bool, scores: bool) -> Exam:
    """Labels count only if all queries have them."""
    known = {query: labels[query] for query in queries if query in labels}
    lists = None
    if scores:
        lists = {query: list(task.given_scores[query]) for query in queries}
    elif not searches:
        lists = {query: list(documents) for query, documents in task.bm25(queries, DEPTH).items()}
    return Exam(queries, known if len(known) == len(queries) else {}, {}, lists)
