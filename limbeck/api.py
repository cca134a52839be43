"""The functions of `import limbeck as lb`: one for each command that computes something, with the command's options.

Most take `device` (where models run: cpu, cuda, cuda:1 or mps) and `progress` (shown on standard error; by default on
a terminal and in notebooks). Those that run a finished model take `runtime` (torch, onnx, int8, openvino or auto; by
default the fastest float32 runtime that is known). The commands of `limbeck.cli` call these functions and print what
they return.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.errors import LimbeckError
from limbeck.matchers.device_choice import asked_device, using_device
from limbeck.progress import has_reporter, reporting
from limbeck.runtimes.choice import Size, measuring_on, using_runtime
from limbeck.training.tracker_choice import using_trackers

if TYPE_CHECKING:
    from limbeck.data.passages import Passages
    from limbeck.evaluation.inspection import Inspection
    from limbeck.evaluation.request import Evaluation
    from limbeck.generation.generate import Generated
    from limbeck.matchers import Matcher
    from limbeck.recipe import Recipe
    from limbeck.runs import Result
    from limbeck.runs.compress.table import Compressed
    from limbeck.runs.push import Pushed
    from limbeck.runtimes.auto import Choice
    from limbeck.runtimes.export import Written
    from limbeck.scoring.job import Done
    from limbeck.search.index import SearchIndex
    from limbeck.training.annotate import Annotated


def distill(
    recipe: str | Path | dict[str, Any] | Recipe,
    out: str | Path | None = None,
    overrides: Sequence[str] | None = None,
    progress: bool | None = None,
    device: str | None = None,
    report_to: Sequence[str] = (),
) -> Result:
    """Train the student of a recipe, measure it and write a report, as `limbeck distill` does.

    If it is killed, call it again to resume; a finished run is returned as is. `overrides` are what `--set` takes:
    `key.path=value`. `report_to` names trackers that show the training: tensorboard, wandb, mlflow or trackio.

    >>> import limbeck as lb
    >>> result = lb.distill("mine.yaml", overrides=["stages.0.steps=2"])
    >>> [row.name for row in result.rows]
    ['teacher', 'BM25', 'student']
    >>> result.student.score([("copy a file", "copy one file to a folder")]).shape
    (1,)
    """
    from limbeck.runs.run import distill as run

    with _working(device, progress), using_trackers(report_to):
        return run(recipe, out, list(overrides or []))


def sweep(
    recipe: str | Path | dict[str, Any] | Recipe,
    over: Sequence[str] = (),
    *,
    tune: Sequence[str] = (),
    seeds: int = 1,
    against: str | None = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    drop_students: bool = False,
    questions: Sequence[str] = (),
    note: str = "",
    progress: bool | None = None,
    device: str | None = None,
    report_to: Sequence[str] = (),
) -> Result:
    """Run a recipe over a grid of settings and put everything into one table, as `limbeck sweep` does.

    `over` and `tune` are `key=A,B,C`; `objective` is that of the last stage. Called again with more values or
    seeds, it trains only what is new. The report shows how the best student answers `questions`, and `note`.
    `report_to` names trackers, as in `distill`.

    >>> import limbeck as lb
    >>> result = lb.sweep("mine.yaml", ["objective=one_hot,softmax_ce"], overrides=["stages.0.steps=2"])
    >>> [row.name for row in result.rows if row.kind == "student"]
    ['one_hot', 'softmax_ce']
    """
    from limbeck.runs.sweep import sweep as run

    with _working(device, progress), using_trackers(report_to):
        return run(recipe, over, tune, seeds, out, against, overrides, questions, note, keep=not drop_students)


def compress(
    teacher: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    budget: str | Sequence[str] = (),
    keep: str | float | None = None,
    minutes: float | None = 30,
    index: str | Path | None = None,
    vectors: str | Path | None = None,
    start: str | Path | None = None,
    threads: int = 1,
    seed: int = 0,
    length: int | None = None,
    questions: Sequence[str] = (),
    progress: bool | None = None,
    device: str | None = None,
    report_to: Sequence[str] = (),
) -> Compressed:
    """Distil a teacher into students along the whole range of cost and recommend one, as `limbeck compress` does.

    `budget` is "2ms", "1KB/doc" or both; `keep` is the share of the teacher's quality. `index` or `vectors` are the
    teacher's document vectors, which the students keep. `start` is what students of a re-ranker start from; MiniLM by
    default. `length` is the number of tokens that the teacher reads of a text. The report shows how the recommended
    student answers `questions`. If it is killed, or the minutes are over, call it again to go on. `report_to` names
    trackers, as in `distill`.

    >>> import limbeck as lb
    >>> found = lb.compress("runs/mine", "my-data", "my-students", keep="90%", minutes=1)
    >>> found.recommended in [row.name for row in found.rows]
    True
    >>> found.verdict.level.name in ("WIN", "MARGINAL", "REGRESSION")
    True
    >>> found.student.encode_query("copy a file").shape
    (32,)
    """
    from limbeck.runs.compress.run import compress as run

    if index is not None and vectors is not None:
        raise LimbeckError("--index and --vectors are two sources of the same vectors; give one")
    kept = _text(index) if index is not None else _text(vectors)
    budgets = [budget] if isinstance(budget, str) else list(budget)
    with _working(device, progress), using_trackers(report_to):
        return run(
            str(teacher), str(data), out, budgets, keep, minutes, kept, _text(start), threads, seed, length, questions
        )


def evaluate(
    model: str | Path,
    data: str | Path,
    *,
    task: str | None = None,
    mode: str | None = None,
    fusion: str | None = None,
    alpha: float | None = None,
    split: str = "test",
    against: str | Path | None = None,
    against_mode: str | None = None,
    against_fusion: str | None = None,
    against_alpha: float | None = None,
    candidates: str | Path | None = None,
    depth: int = 100,
    add_judged: bool = False,
    measures: Sequence[str] | None = None,
    also: Sequence[str] = (),
    relevance_level: int = 1,
    lengths: tuple[int, int] | None = None,
    head: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    store: str | Path | None = None,
    run: str | Path | None = None,
    progress: bool | None = None,
    device: str | None = None,
    runtime: str | None = None,
) -> Evaluation:
    """Measure a model, a run, an index, `bm25` or a TREC run file on a data set, as `limbeck evaluate` does.

    `also` are measures in addition to the default ones or those of `measures`.

    >>> import limbeck as lb
    >>> found = lb.evaluate("runs/mine", "my-data", task="rerank", depth=5, measures=["ndcg@10"], against="bm25")
    >>> found.task, found.count, list(found.measures)
    ('rerank', 2, ['ndcg@10'])
    >>> found.comparisons[0].measure
    'ndcg@10'
    """
    from limbeck.evaluation.evaluate import run_evaluation, searches_all
    from limbeck.evaluation.request import Request
    from limbeck.runtimes.job_size import evaluated_in
    from limbeck.search.manifest import is_an_index

    request = Request(
        str(model), str(data), task, split, _text(against), _text(candidates), depth, add_judged, measures,
        relevance_level, limit, _path(store), _path(run), also, mode, fusion, alpha, lengths, head,
        against_mode, against_fusion, against_alpha, seed,
    )  # fmt: skip

    def size(matcher: Matcher) -> int:
        listed = 0 if is_an_index(request.model) else depth  # an index needs only queries
        return evaluated_in(matcher, data, split, listed, limit, searches_all(request, matcher))

    with _running(device, progress, runtime, data, size):
        return run_evaluation(request)


def annotate(
    teacher: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    split: str = "train",
    queries: str | Path | None = None,
    candidates: str | Path = "bm25",
    depth: int = 100,
    revision: str | None = None,
    batch_size: int = 32,
    bf16: bool = False,
    top: int | None = None,
    export: str | Path | None = None,
    shape: str | None = None,
    progress: bool | None = None,
    device: str | None = None,
    runtime: str | None = None,
) -> Annotated:
    """Score candidates with a teacher and keep its raw scores in the folder `out`, as `limbeck annotate` does.

    It never scores a pair twice. `export` also writes the scores to a file; `top` keeps only the best of each query.

    >>> import limbeck as lb
    >>> done = lb.annotate("runs/mine", "my-data", "my-scores", depth=3, export="scores.trec")
    >>> done.scored == len(done.store)
    True
    >>> lb.annotate("runs/mine", "my-data", "my-scores", depth=3).scored
    0
    """
    from limbeck.runtimes.job_size import annotated_in
    from limbeck.training.annotate import annotate_data, export_scores, export_shape

    folder = Path(out)
    written = export_shape(shape, export, top)
    with _running(device, progress, runtime, data, lambda _: annotated_in(data, split, depth, queries)):
        done = annotate_data(
            str(teacher), str(data), folder, split, _path(queries), str(candidates), depth, revision, batch_size, bf16,
            written,
        )  # fmt: skip
        if written is not None:
            export_scores(done, Path(export or folder / "top.trec"), written, top)
    return done


def index(
    model: str | Path | Matcher | None,
    data: str | Path | Passages | Mapping[str, str] | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    kind: str = "auto",
    language: str = "english",
    k1: float = 0.9,
    b: float = 0.4,
    window: int | None = None,
    stride: int | None = None,
    dense: bool = True,
    sparse: bool = True,
    store: str | Path | None = None,
    expansions: str | Path | None = None,
    seed: int = 0,
    progress: bool | None = None,
    device: str | None = None,
    runtime: str | None = None,
) -> SearchIndex:
    """Index passages with a dual encoder's vectors and with BM25, as `limbeck index` does, and open the index.

    `data` is a data set, a file, texts by their ids, or records. With `dense=False` the model is None. A model in
    memory stays in the `runtime` that you ask for. An open index has `search`, `get`, `add` and `delete`.

    >>> import limbeck as lb
    >>> index = lb.index("runs/mine", {"d1": "copy one file to a folder", "d2": "sort a list"}, "my-index")
    >>> len(index)
    2
    >>> [hit.id for hit in index.search("copy a file", k=1, mode="sparse").hits]
    ['d1']
    """
    from limbeck.data.passages import Passages
    from limbeck.runtimes.job_size import passages_in
    from limbeck.search.build import build_index
    from limbeck.search.milvus_address import is_milvus, trust

    if is_milvus(store):
        trust(str(store))
    source = data if isinstance(data, str | Path | Passages) else Passages.of(data)
    with _running(device, progress, runtime, data, lambda _: passages_in(source)):
        encoder = _asked_model(model, runtime)
        return build_index(
            encoder, source, out, kind, language, k1, b, window, stride, dense, sparse, store, seed, expansions
        )


def open_index(
    path: str | Path,
    *,
    model: str | Path | Matcher | None = None,
    milvus: str | None = None,
    device: str | None = None,
    runtime: str | None = None,
) -> SearchIndex:
    """Open an index that `index` or `limbeck index` wrote.

    Its model is loaded with the first query that needs it. Give another `model`, a folder or one that is in memory, to
    encode queries: a student that keeps the document tower of the index's model (`student.document`). A model in memory
    stays in the `runtime` that you ask for. `milvus` is the address of the server that holds the index's vectors, if
    you trust it.

    >>> import limbeck as lb
    >>> index = lb.open_index("my-index")
    >>> [hit.id for hit in index.search("copy a file", k=1, mode="sparse").hits]
    ['d1']
    """
    from limbeck.search.index import SearchIndex
    from limbeck.search.milvus_address import trust

    if milvus is not None:
        trust(milvus)
    with using_device(device), using_runtime(runtime, single=True):
        if isinstance(model, str | Path):
            from limbeck.matchers import load

            model = load(model)
        else:
            model = _asked_model(model, runtime)
        found = SearchIndex.open(Path(path).expanduser(), model)
        if device is not None and found.manifest.dense is not None:
            _ = found.dense.matcher  # loads it there
    return found


def score(
    model: str | Path,
    pairs: str | Path | None,
    out: str | Path,
    *,
    left: str | Path | None = None,
    right: str | Path | None = None,
    top_k: int | None = None,
    head: str = "auto",
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    shard: int | None = None,
    dtype: str = "float32",
    columns: str | None = None,
    store: str | Path | None = None,
    progress: bool | None = None,
    device: str | None = None,
    runtime: str | None = None,
) -> Done:
    """Score a file of pairs, or every left text with every right one, into parquet files, as `limbeck score` does.

    Each distinct text is encoded once. If it is killed, call it again to resume. Worker processes score on the CPU
    unless you ask for a device: several processes share a GPU badly.

    >>> import limbeck as lb
    >>> done = lb.score("runs/mine", "pairs.csv", "my-pair-scores", workers=1)
    >>> done.pairs, done.scored
    (2, 2)
    >>> import pyarrow.parquet as pq
    >>> pq.read_table(done.folder / "scores").num_rows
    2
    """
    from limbeck.runtimes.job_size import listed_in
    from limbeck.scoring.engine import engine_named
    from limbeck.scoring.job import score_pairs

    texts = pairs if right is None else right  # a list of ids has no texts of its own
    with _running(device, progress, runtime, texts, lambda matcher: listed_in(matcher, pairs, left, right)):
        where = engine_named(engine, workers, address)
        return score_pairs(
            str(model), pairs, out, where, _text(left), _text(right), top_k, shard, dtype, store, head, columns
        )


def generate(
    data: str | Path,
    out: str | Path,
    *,
    how: str | None = None,
    model: str | Path | None = None,
    split: str | None = None,
    per_query: int = 2,
    noise: float | None = None,
    mask: float | None = None,
    max_length: int | None = None,
    drop: float | None = None,
    swap: float | None = None,
    draw_from: str | Path | None = None,
    seed: int = 0,
    batch_size: int = 8,
    progress: bool | None = None,
    device: str | None = None,
) -> Generated:
    """Write new queries near the ones you have to a .jsonl file, as `limbeck generate` does.

    `how` is `model` (with a seq2seq `model`), `perturb`, `spans` (of documents) or `sample` (from `draw_from`). Killed
    at any point and called again, it goes on where it was.

    >>> import limbeck as lb
    >>> made = lb.generate("my-data", "near.jsonl", how="perturb")
    >>> made.how, made.sources, made.queries > 0
    ('perturb', 8, True)
    """
    from limbeck.generation.generate import generate_queries
    from limbeck.generation.ways import Settings

    chosen = how or ("perturb" if model is None else "model")
    settings = Settings(chosen, per_query, seed, noise, mask, max_length, drop, swap)
    with _working(device, progress):
        return generate_queries(data, out, settings, _text(model), split, draw_from, batch_size)


def inspect(
    model: str | Path | Matcher,
    first: str,
    second: str,
    *,
    teacher: str | Path | Matcher | None = None,
    layer: int | None = None,
    out: str | Path | None = None,
    device: str | None = None,
) -> Inspection:
    """The attention between the tokens of two texts, as `limbeck inspect` shows it.

    A cross-encoder has such a map. For a model that encodes texts apart it is the virtual map that VIRT forms from the
    queries of one text and the keys of the other. `layer` counts from 0 and is the last by default; `out` is an HTML
    file for pictures.

    >>> import limbeck as lb
    >>> found = lb.inspect("runs/mine", "copy a file", "copy one file to a folder", teacher="runs/mine/teacher/model")
    >>> found.model.map.first, found.model.map.there.shape
    (('copy', 'a', 'file'), (3, 6))
    >>> len(found.views), found.distance > 0
    (2, True)
    """
    from limbeck.evaluation.inspection import inspect_pair
    from limbeck.files import require_writable
    from limbeck.report.inspection import write_inspection

    require_writable(_path(out))
    with _working(device, False):
        found = inspect_pair(model, first, second, teacher, layer)
    if out is not None:
        write_inspection(found, out)
    return found


def measure_runtimes(
    model: str | Path,
    data: str | Path | None = None,
    *,
    threads: Sequence[int] | None = None,
    progress: bool | None = None,
) -> Choice:
    """How fast a model is in each runtime on this machine, and how near to torch, as `limbeck runtimes` does.

    It is measured on texts of a data set, or on built-in ones, with 1 thread and with all; nDCG@10 on judged queries of
    the data set, if it has any. `runtime="auto"` of other functions uses what was found here. The card
    of a student gets a table of it.

    >>> import limbeck as lb
    >>> found = lb.measure_runtimes("runs/mine", "my-data", threads=[1])
    >>> found.rows[0].runtime, found.rows[0].closeness, found.judged
    ('torch', 1.0, '2 dev queries with 6 candidates each')
    """
    from limbeck.matchers import load
    from limbeck.runs.student_card import add_runtimes
    from limbeck.runtimes.auto import choose
    from limbeck.runtimes.sample import sample_of

    with _working("cpu", progress):
        import torch

        counts = sorted({1, torch.get_num_threads()}) if threads is None else list(threads)
        matcher = load(model)
        found = choose(matcher, sample_of(_text(data)), counts)
        if matcher.folder is not None:
            add_runtimes(matcher.folder, found.rows, found.source)
        return found


def export(
    model: str | Path,
    out: str | Path,
    *,
    int8: bool = False,
    data: str | Path | None = None,
    gate: float | None = None,
    max_loss: float | None = None,
    progress: bool | None = None,
) -> Written:
    """Write a dual encoder, ColBERT or cross-encoder as a folder that runs without torch, as `limbeck export` does.

    `limbeck.runtimes.exported.Exported.load` runs it. With `int8` it refuses to write a folder that loses more than
    `max_loss` (0.005) of nDCG@10 on judged queries of `data`. Without such queries, or if you give `gate`, the mean
    cosine of vectors to the model's (of scores, the correlation) has to be at least `gate` (0.99).

    >>> import limbeck as lb
    >>> written = lb.export("runs/mine", "my-export", data="my-data")
    >>> written.runtime, written.cosine > 0.9999
    ('onnx', True)
    """
    from limbeck.runtimes.export import export_model
    from limbeck.runtimes.gate import LOSS, Gate
    from limbeck.runtimes.sample import Sample, sample_of

    for name, value in (("gate", gate), ("max_loss", max_loss)):
        if value is not None and not int8:
            raise LimbeckError(f"{name} requires int8; leave it out")
    if gate is not None and max_loss is not None:
        raise LimbeckError("gate and max_loss are two limits of one gate; leave one of them out")
    asked = Gate(loss=LOSS if max_loss is None else max_loss) if gate is None else Gate(gate, None)

    def read_sample() -> Sample:
        sample = sample_of(_text(data))
        if max_loss is not None and sample.judged is None:
            problem = (
                f"{sample.source}: has no judged queries to measure a loss on" if data else "--max-loss needs --data"
            )
            raise LimbeckError(f"{problem}; give data with judgements, or --gate instead of --max-loss")
        return sample

    with _working("cpu", progress):
        return export_model(model, out, read_sample, int8, asked)


def push(student: str | Path, name: str, *, private: bool = False, progress: bool | None = None) -> Pushed:
    """Upload a student and its card to the repository `name` (owner/name) of the Hugging Face hub, as `limbeck push`
    does. Nothing else of a run is uploaded. You must be logged in (`hf auth login`).

    >>> import limbeck as lb
    >>> lb.push("runs/mine", "mine")
    Traceback (most recent call last):
    limbeck.errors.LimbeckError: mine: is not the name of a repository; give owner/name, e.g. my-team/my-student
    """
    from limbeck.runs.push import push_student

    with _working(None, progress):
        return push_student(student, name, private)


def recipes() -> dict[str, str]:
    """The recipes that come with limbeck: what each is for, by its name.

    >>> import limbeck as lb
    >>> "defense-laptop" in lb.recipes()
    True
    """
    from limbeck.recipe.files import read_recipe, shipped

    return {name: read_recipe(path)[1].get("description", "") for name, path in shipped().items()}


def _path(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name)


def _text(name: str | Path | None) -> str | None:
    return None if name is None else str(name)


def _asked_model(model: Any, runtime: str | None) -> Any:
    """A model in memory in the runtime that was asked for; it stays in it. A name is returned as it is."""
    from limbeck.matchers.after_loading import finished

    return model if runtime is None or model is None or isinstance(model, str | Path) else finished(model)


@contextmanager
def _running(
    device: str | None, progress: bool | None, runtime: str | None, source: object, size: Size
) -> Iterator[None]:
    """`_working` in a runtime. It may be measured on the source; `size` is how much of it a matcher will run."""
    with _working(device, progress), using_runtime(runtime), measuring_on(source, size):
        yield


@contextmanager
def _working(device: str | None, progress: bool | None) -> Iterator[None]:
    """On a device, which is refused here if it does not exist, and with progress where somebody watches."""
    with using_device(device), _reporting(_watched() if progress is None else progress):
        if asked_device() is not None:
            from limbeck.matchers.device import chosen_device

            chosen_device()
        yield


def _reporting(shown: bool) -> Any:
    if shown and has_reporter():
        return nullcontext()  # the caller's own
    if not shown:
        return reporting(None)
    from limbeck.console import reporter

    return reporting(reporter())


def _watched() -> bool:
    return has_reporter() or sys.stderr.isatty() or "ipykernel" in sys.modules
