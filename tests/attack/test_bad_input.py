"""Bad arguments and bad files, for every verb: exit code 2, one line, and nothing half-done left behind.

Most of them run in this process, through the function that the command calls. `FIGURES` counts them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from limbeck.matchers import build, matcher_config
from limbeck.printable import UNSAFE
from tests.attack.bad_files import DIGITS, bad_files, bad_folders, good_rows
from tests.attack.harness import command
from tests.cli.conftest import Done, limbeck  # noqa: F401  (fixture)
from tests.training.conftest import beir as make_beir

pytestmark = pytest.mark.full
SECONDS = 60  # none of these commands may hang: on a pipe, or on a device that never ends
FIGURES: Counter[str] = Counter()
Run = Callable[..., Done]


class Place(NamedTuple):
    """Good data, models and an index, and all that is bad."""

    root: Path
    good: dict[str, str]
    bad: dict[str, str]

    def fill(self, arguments: list[str], bad: str = "") -> list[str]:
        return [argument.format(bad=bad.replace("{", "{{"), **self.good) for argument in arguments]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("bad-input")
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 8}
    kinds = {
        "dual": matcher_config(**lengths, layers=1),
        "cross": matcher_config(**lengths, kind="cross_encoder", layers=1),
        "dipair": matcher_config(**lengths, kind="dipair", tokens=[2, 2], dim=16),
    }
    for name, spec in kinds.items():
        build(spec).save_pretrained(root / name)
    data = make_beir.__wrapped__(root)  # type: ignore[attr-defined]
    rows = [{"text_a": f"copy {n}", "text_b": f"sort {n}", "label": n % 2} for n in range(20)]
    (root / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "passages.jsonl").write_text(good_rows(20))
    stage = {"objectives": ["one_hot"], "steps": 2, "batch_size": 4, "lists": {"size": 2, "pool": 4}}
    recipe = {"name": "tiny", "data": {"source": str(data)}, "student": {**lengths, "layers": 1}, "stages": [stage]}
    (root / "recipe.yaml").write_text(json.dumps(recipe))
    (root / "files").mkdir()
    (root / "folders").mkdir()
    good = {name: str(root / name) for name in (*kinds, "index", "out", "run")}
    good |= {"data": str(data), "bert": tiny_bert, "pairs": str(root / "pairs.jsonl"), "root": str(root)}
    good |= {"passages": str(root / "passages.jsonl"), "recipe": str(root / "recipe.yaml")}
    subprocess.run(
        command("index", good["dual"], good["data"], "--out", good["index"]), check=True, capture_output=True
    )
    yield Place(root, good, bad_files(root / "files") | bad_folders(root / "folders"))
    print(f"\nbad input: {sum(FIGURES.values()):,} tries: {dict(FIGURES)}")


@contextmanager
def in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refuses(run: Run, place: Place, arguments: list[str], *words: str) -> str | None:
    """What is wrong with how a command refuses; None if nothing is."""
    before = snapshot(place.root)
    try:
        with in_time():
            done = run(*arguments)
    except Exception as error:
        shutil.rmtree(place.good["out"], ignore_errors=True)
        return f"{type(error).__name__}: {error}"
    left = {*snapshot(place.root)} - {*before}
    if left == {place.good["out"], f"{place.good['out']}/recipe.yaml"}:
        left = set()  # a run that has begun nothing takes a corrected recipe
    changed = {name for name, state in snapshot(place.root).items() if name in before and before[name] != state}
    shutil.rmtree(place.good["out"], ignore_errors=True)
    lines = [line for line in done.err.splitlines() if line.startswith("limbeck: ")]
    problems = {
        f"exit code {done.code}": done.code != 2,
        f"{len(lines)} lines": len(lines) != 1,
        "traceback": "Traceback" in done.err,
        "control characters": bool(set(done.out + done.err) & UNSAFE),
        f"printed {done.out[:80]!r}": bool(done.out.strip()),
        f"left {sorted(left)[:3]}": bool(left),
        f"changed {sorted(changed)[:3]}": bool(changed),
        f"no {words} in {lines[:1]}": bool(lines) and not all(word in lines[0] for word in words),
    }
    found = [problem for problem, holds in problems.items() if holds]
    return f"{'; '.join(found)}: {done.err[-200:]}" if found else None


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file outside the bad ones, which nobody writes to."""
    found = {}
    for folder, names, files in os.walk(root):
        if Path(folder) == root:
            names[:] = [name for name in names if name not in ("files", "folders")]
        for name in (*names, *files):
            state = os.lstat(os.path.join(folder, name))
            # an index notes which files it has compared with their checksums
            found[os.path.join(folder, name)] = (
                (0, 0) if name in ("verified.json", "index") else (state.st_size, state.st_mtime_ns)
            )
    return found


def report(kind: str, tries: int, problems: dict[str, str]) -> None:
    FIGURES[kind] += tries
    shown = "\n".join(f"{name}: {problem}" for name, problem in list(problems.items())[:20])
    assert not problems, f"{len(problems)} of {tries} failed\n{shown}"


INPUTS = [
    "evaluate bm25 {bad}",
    "evaluate {bad} {data}",
    "evaluate {cross} {bad}",
    "evaluate {dual} {data} --against {bad}",
    "evaluate {cross} {data} --candidates {bad}",
    "compress {bad} {data} --out {out}",
    "compress {dual} {bad} --out {out}",
    "compress {dual} {data} --index {bad} --out {out}",
    "compress {dual} {data} --vectors {bad} --out {out}",
    "distill {bad} --out {out}",
    "export {bad} --out {out}",
    "inspect {bad} copy sort",
    "push {bad} owner/name",
    "runtimes {bad}",
    "runtimes {dual} {bad}",
    "sweep {bad} --over seed=1,2 --out {out}",
    "annotate {bad} {data} --out {out}",
    "annotate {cross} {bad} --out {out}",
    "annotate {cross} {data} --queries {bad} --out {out}",
    "annotate {cross} {data} --candidates {bad} --out {out}",
    "index {bad} {data} --out {out}",
    "index {dual} {bad} --out {out}",
    "index --no-dense {bad} --out {out}",
    "index --no-dense {data} --expansions {bad} --out {out}",
    "index --add {bad} --out {index}",
    "index --delete {bad} --out {index}",
    "index --compact --out {bad}",
    "index --verify --out {bad}",
    "search {bad} copy",
    "search {index} --queries {bad} --run {out}/o.trec",
    "tune {bad} {data}",
    "tune {index} {bad}",
    "expand {bad} --model {bert} --out {out}",
    "expand {data} --model {bad} --out {out}",
    "generate {bad} --out {out}/near.jsonl",
    "generate {data} --model {bad} --out {out}/near.jsonl",
    "pairs {bad} --out {out}",
    "pairs {data} --model {bad} --out {out}",
    "score {bad} {pairs} --out {out} --workers 1",
    "score {dipair} {bad} --out {out} --workers 1",
    "score {dipair} --left {bad} --right {passages} --out {out} --workers 1",
    "report {bad}",
]
# What is no mistake: a list of ids to delete may be empty, and a run may have measured nothing.
FINE = {
    "index --delete {bad} --out {index}": ("empty", "blank", "surrogate.jsonl"),  # its id is a good one
    "report {bad}": ("all-surrogate", "all-wrong-types"),
}


@pytest.mark.parametrize("verb", INPUTS)
def test_every_bad_file_in_every_place(limbeck: Run, place: Place, verb: str):  # noqa: F811
    problems, tries = {}, 0
    for name, path in place.bad.items():
        if name.startswith(FINE.get(verb, ("\0",))):
            continue
        tries += 1
        found = refuses(limbeck, place, place.fill(verb.split(), path))
        if found is not None:
            problems[name] = found
    report("files", tries, problems)


ARGUMENTS = [
    *(f"{verb} --nonsense" for verb in "demo recipes distill sweep annotate index search expand tune pairs".split()),
    *("generate --nonsense", "generate", "generate {data}", "generate {pairs} --out {out}/near.jsonl"),
    *("score --nonsense", "evaluate --nonsense", "report --nonsense", "nonsense", "--nonsense", "distil"),
    *("distill", "sweep", "annotate", "annotate {cross} {data}", "index", "search", "expand", "expand {data}", "tune"),
    *("tune {index}", "pairs", "pairs {data}", "score", "score {dipair}", "evaluate", "evaluate bm25", "report"),
    *(f"evaluate bm25 {{data}} --depth {value}" for value in ("0", "-1", "1.5", "nan", "x", "", DIGITS)),
    *(f"evaluate bm25 {{data}} --limit {value}" for value in ("0", "-1", "x", "1e3")),
    *(f"evaluate bm25 {{data}} --seed {value}" for value in ("-1", "x")),
    *(f"evaluate bm25 {{data}} --relevance-level {value}" for value in ("0", "-1", "2", "x")),
    *(f"evaluate bm25 {{data}} --split {value}" for value in ("tset", "../x", "")),
    *(f"evaluate bm25 {{data}} --task {value}" for value in ("rank", "pairs", "")),
    *(f"evaluate bm25 {{data}} --measures {value}" for value in ("nddcg@10", "ndcg@0", "ndcg@-1", "p", ",")),
    *(f"evaluate bm25 {{data}} --fail-below {value}" for value in ("ndcg", "ndcg@10=x", "ndcg@10=nan", "=1")),
    *(f"evaluate {{dual}} {{data}} --lengths {value}" for value in ("8", "8,x", "2,8", "-8,8", "8,8,8")),
    *("evaluate bm25 {data} --lengths 8,8", "evaluate bm25 {data} --mode dense", "evaluate bm25 {data} --alpha 1"),
    *("evaluate {cross} {data} --task retrieve", "evaluate {cross} {data} --candidates tokens"),
    *("evaluate {dual} {data} --head int8", "evaluate {dual} {pairs} --head int4", "evaluate bm25 {pairs}"),
    *("evaluate {dual} {pairs} --task rerank", "evaluate {dual} {pairs} --split train --measures ndcg@10"),
    *("evaluate {dual} {pairs} --split test", "evaluate {dual} {pairs} --split train --measures accuracy"),
    *("evaluate {index} {data} --mode nonsense", "evaluate {index} {data} --fusion nonsense"),
    *(f"evaluate {{index}} {{data}} --alpha {value}" for value in ("nan", "inf", "-1", "x")),
    *(f"compress {{dual}} {{data}} --out {{out}} --budget {value}" for value in ("", "2", "2x", "-1ms", "nan", "1KB")),
    *(f"compress {{dual}} {{data}} --out {{out}} --keep {value}" for value in ("", "x", "-5%", "300%", "nan")),
    *(f"compress {{dual}} {{data}} --out {{out}} --minutes {value}" for value in ("0", "-1", "x", "nan")),
    *(f"compress {{dual}} {{data}} --out {{out}} --fail-below {value}" for value in ("x", "ndcg@10", "ndcg@10=x")),
    *(f"compress {{dual}} {{data}} --out {{out}} --{what}" for what in ("length 2", "threads 0", "seed -1")),
    *("compress {dual} {data} --out {out} --start {dual}",),
    *("compress", "compress {dual}", "compress {dual} {data}", "compress {dual} {pairs} --out {out}"),
    *("compress {cross} {data} --out {out} --index {index}", "compress {dual} {data} --out {out} --report-to x"),
    *("export", "export {dual}", "export {dipair} --out {out}", "export {dual} --out {out} --gate 2"),
    *("export {dual} --out {out} --max-loss -1", "runtimes", "runtimes {dual} {data} --threads 0", "inspect {dual} a"),
    *("inspect {dual} copy sort --layer 9", "push {dual}", "push {dual} nonsense", "push {dual} a/b/c"),
    *("demo --minutes 0", "demo --minutes x", "evaluate {dual} {data} --runtime x"),
    *("evaluate {index} {data} --task rerank", "evaluate {index} {data} --candidates bm25"),
    *(f"search {{index}} copy --k {value}" for value in ("0", "-1", "x", "1.5")),
    *(f"search {{index}} copy --alpha {value}" for value in ("nan", "inf", "-1", "x")),
    *(f"search {{index}} copy --mode {value}" for value in ("nonsense", "Dense")),
    *(f"search {{index}} copy --fusion {value}" for value in ("nonsense", "")),
    *(f"search {{index}} copy --where {value}" for value in ("x", "=", "lang=en", "year>=2020", "_id=d1")),
    *("search {index} copy --run {out}/x", "search {index} --queries {passages}", "search {index} --timings"),
    *("search {index} copy --queries {passages}", "search {index} zzzz --mode sparse"),
    *(f"tune {{index}} {{data}} --alphas {value}" for value in ("x", "", "1,,2", "nan", "-1", "inf")),
    *(f"tune {{index}} {{data}} --limit {value}" for value in ("0", "1", "-1")),
    *("tune {index} {data} --measure nonsense", "tune {index} {data} --split nonsense", "tune {index} {pairs}"),
    *(f"index {{dual}} {{data}} --out {{out}} --kind {value}" for value in ("nonsense", "", "HNSW")),
    *(f"index {{dual}} {{data}} --out {{out}} --k1 {value}" for value in ("nan", "inf", "-1", "x")),
    *(f"index {{dual}} {{data}} --out {{out}} --b {value}" for value in ("nan", "2", "-1")),
    *(f"index {{dual}} {{data}} --out {{out}} --language {value}" for value in ("klingon", "", "../x")),
    *(f"index {{dual}} {{data}} --out {{out}} --window {value}" for value in ("0", "-1")),
    *("index {dual} {data} --out {out} --window 8 --stride 99", "index {dual} {data} --out {out} --stride 4"),
    *("index {cross} {data} --out {out}", "index {dual} {pairs} --out {out}", "index {dual} --out {out}"),
    *("index --out {out}", "index {dual} {data} --add {passages} --out {index}", "index --add {passages} --out {out}"),
    *("index {dual} {data} --no-dense --no-sparse --out {out}", "index --compact --kind flat --out {index}"),
    *(f"annotate {{cross}} {{data}} --out {{out}} --depth {value}" for value in ("0", "-1", "x")),
    *(f"annotate {{cross}} {{data}} --out {{out}} --split {value}" for value in ("nonsense", "../x")),
    *(f"annotate {{cross}} {{data}} --out {{out}} --batch-size {value}" for value in ("0", "-1")),
    *("annotate {cross} {data} --out {out} --shape nonsense", "annotate {cross} {data} --out {out} --shape trec"),
    *("annotate {cross} {pairs} --out {out}", "annotate bm25 {data} --out {out}"),
    *(f"expand {{data}} --model {{bert}} --out {{out}} --per-document {value}" for value in ("0", "-1", "x")),
    *(f"expand {{data}} --model {{bert}} --out {{out}} --keep {value}" for value in ("0", "-1", "2", "nan")),
    *("expand {data} --model {dual} --out {out}", "expand {pairs} --model {bert} --out {out}"),
    *(f"pairs {{data}} --out {{out}} --how {value}" for value in ("nonsense", "")),
    *(f"pairs {{data}} --out {{out}} --hard {value}" for value in ("0", "-1")),
    *("pairs {data} --out {out} --below nan --how neighbours", "pairs {data} --out {out} --model {cross}"),
    *(f"score {{dipair}} {{pairs}} --out {{out}} --workers {value}" for value in ("0", "-1", "x")),
    *(f"score {{dipair}} {{pairs}} --out {{out}} --shard {value}" for value in ("0", "-1")),
    *(f"score {{dipair}} {{pairs}} --out {{out}} --top-k {value}" for value in ("0", "-1")),
    *(f"score {{dipair}} {{pairs}} --out {{out}} --{what}" for what in ("head x", "engine x", "dtype x", "address x")),
    *("score {dipair} {data} --out {out}", "score {dipair} --out {out}"),
    *("score {dipair} --left {passages} --out {out}",),
    *(f"distill {{recipe}} --out {{out}} --set {value}" for value in (
        "x", "=1", "seed=2020-99-99", f"seed={DIGITS}", "seed=-1", "seed=x", "stages.7.steps=1", "stages.0.steps=0",
        "stages.0.steps=x", "stages.0.lr=nan", "stages.0.lr=-1", "stages.0.lr=inf", "stages.0.objectives=[x]",
        "stages.0.objectives=[]", "stages=[]", "data.source=/no/data", "student.start=/no/model", "student.layers=99",
        "student.layers=0", "name=/etc/x", "name=../x", "name=..", "data.nonsense=1", "nonsense.a=1", "data.train=x",
        "stages.0.batch_size=0", "stages.0.lists.size=0", "evaluation.measures=[x]", "student.kind=x", "teacher=/no",
        "student.query_length=-1", "stages.0.freeze=[nonsense]", "seed=[[[", "evaluation.candidates=/no/run",
    )),
    *(f"sweep {{recipe}} --out {{out}} --over {value}" for value in ("x", "seed=", "nonsense=1,2", "stages.9.lr=1,2")),
    *("sweep {recipe} --out {out} --over seed=1,2 --seeds 0", "sweep {recipe} --out {out} --over seed=1,2 --against x"),
    *("sweep {recipe} --out {out} --over seed=1,2 --tune nonsense=1,2",),
    *("report {index}", "report {data}", "report {dual} --add nonsense"),
]  # fmt: skip


def test_every_bad_argument(limbeck: Run, place: Place, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    monkeypatch.chdir(place.root)
    problems = {}
    for line in ARGUMENTS:
        found = refuses(limbeck, place, place.fill(line.split(" ")))
        if found is not None:
            problems[line[:120]] = found
    report("arguments", len(ARGUMENTS), problems)


OUTPUTS = [
    "evaluate bm25 {data} --run {bad}",
    "evaluate {dual} {data} --store {bad}",
    "compress {dual} {data} --out {bad} --minutes 0.001",
    "distill {recipe} --out {bad}",
    "export {dual} --out {bad}",
    "inspect {dual} copy sort --out {bad}",
    "sweep {recipe} --over seed=1,2 --out {bad}",
    "annotate {cross} {data} --out {bad} --depth 3",
    "annotate {cross} {data} --out {out} --depth 3 --export {bad}",
    "index {dual} {data} --out {bad}",
    "index --no-dense {data} --out {bad}",
    "search {index} --queries {data}/queries.jsonl --run {bad}",
    "tune {index} {data} --out {bad}",
    "expand {data} --model {bert} --out {bad}",
    "pairs {data} --out {bad}",
    "score {dipair} {pairs} --out {bad} --workers 1",
]
NOWHERE = ["/proc/x", "/proc/self/x", "/dev/null/x", "{passages}/x", "{root}/files/loop.jsonl", "{root}/" + "x" * 300]


@pytest.mark.parametrize("verb", OUTPUTS)
def test_every_place_that_cannot_be_written(limbeck: Run, place: Place, verb: str):  # noqa: F811
    """`/dev/full` takes a file and then has no space; folders cannot be made there at all."""
    problems = {}
    late = verb.startswith("tune") or "--export" in verb  # the page and the export come after the work itself
    for where in (*NOWHERE, *(["/dev/full"] if not late else [])):
        target = where.format(**place.good)
        found = refuses(limbeck, place, place.fill(verb.split(), target))
        if found is not None:
            problems[where] = found
    report("outputs", len(NOWHERE) + (not late), problems)


@contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    """What `ulimit` does, for this process and no longer than the block."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def writes_a_file(verb: str) -> bool:
    return verb.startswith("inspect") or verb.endswith(("--run {bad}", "--export {bad}"))


WRITERS = [verb.replace("{bad}", "{out}/file" if writes_a_file(verb) else "{out}") for verb in OUTPUTS]


@pytest.mark.parametrize("verb", [verb for verb in WRITERS if not verb.startswith(("tune", "expand"))])
@pytest.mark.parametrize("size", [0, 100, 2000, 20_000])
def test_a_limit_on_the_size_of_files_is_a_full_disk(limbeck: Run, place: Place, verb: str, size: int, tmp_path):  # noqa: F811
    """`ulimit -f`. Whatever is left is what the same command goes on from."""
    with limited(resource.RLIMIT_FSIZE, size), in_time():
        done = limbeck(*place.fill(verb.split()))
    partial = list(place.root.rglob("*.partial"))
    FIGURES["file size limits"] += 1
    assert not partial, partial
    assert "Traceback" not in done.err, done.err[-1500:]
    assert done.code in (0, 2), done
    if done.code == 2:
        assert len([line for line in done.err.splitlines() if line.startswith("limbeck: ")]) == 1, done.err
        again = limbeck(*place.fill(verb.split()))
        assert again.code == 0, again.err
    shutil.rmtree(place.good["out"], ignore_errors=True)


@pytest.mark.parametrize("files", [20, 32])
@pytest.mark.parametrize(
    "verb",
    [
        "evaluate bm25 {data} --run {out}/o.trec",
        "index --no-dense {data} --out {out}",
        "search {index} copy",
        "score {dipair} {pairs} --out {out} --workers 1",
    ],
)
def test_a_limit_on_open_files_is_a_one_line_error(place: Place, verb: str, files: int):
    """`ulimit -n`, for a separate process."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    done = subprocess.run(
        command(*place.fill(verb.split())),
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    FIGURES["open files limits"] += 1
    shutil.rmtree(place.good["out"], ignore_errors=True)
    assert "Traceback" not in done.stderr, done.stderr[-1500:]
    assert done.returncode in (0, 2), done.stderr


CONTENT = {
    "duplicate ids": ("corpus.jsonl", '{"_id": "d1", "text": "x"}\n{"_id": "d1", "text": "y"}\n', "corpus.jsonl:2"),
    "empty id": ("corpus.jsonl", '{"_id": "", "text": "x"}\n', "corpus.jsonl:1"),
    "no text": ("corpus.jsonl", '{"_id": "d1"}\n', "corpus.jsonl:1"),
    "number as text": ("corpus.jsonl", '{"_id": "d1", "text": 7}\n', "corpus.jsonl:1"),
    "lone surrogate": ("corpus.jsonl", '{"_id": "d1", "text": "\\ud800"}\n', "corpus.jsonl:1"),
    "lone surrogate in an id": ("corpus.jsonl", '{"_id": "\\udfff", "text": "x"}\n', "corpus.jsonl:1"),
    "empty query": ("queries.jsonl", '{"_id": "q24", "text": " "}\n', "queries.jsonl:1"),
    "duplicate queries": ("queries.jsonl", '{"_id": "q", "text": "a"}\n{"_id": "q", "text": "b"}\n', "queries.jsonl:2"),
    "unknown document": ("qrels/test.tsv", "q24\tnowhere\t1\n", "test.tsv:1"),
    "unknown query": ("qrels/test.tsv", "nobody\td1\t1\n", "test.tsv:1"),
    "a grade that is no number": ("qrels/test.tsv", "q24\td1\tgood\n", "test.tsv:1"),
    "a grade that is NaN": ("qrels/test.tsv", "q24\td1\tnan\n", "test.tsv:1"),
    "a huge grade": ("qrels/test.tsv", f"q24\td1\t{DIGITS}\n", "test.tsv:1"),
    "two columns": ("qrels/test.tsv", "q24\td1\n", "test.tsv:1"),
    "negative grades": ("qrels/test.tsv", "q24\td1\t-1\n", "relevant"),
    "only a heading": ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n", "test.tsv"),
}
RUNS = {
    "nan": "q24 Q0 d1 1 nan x\n",
    "inf": "q24 Q0 d1 1 inf x\n",
    "huge": "q24 Q0 d1 1 1e300 x\n",
    "text": "q24 Q0 d1 1 high x\n",
    "twice": "q24 Q0 d1 1 2 x\nq24 Q0 d1 2 1 x\n",
    "short": "q24 Q0 d1\n",
    "unknown document": "q24 Q0 nowhere 1 1 x\n",
}


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize(
    "verb",
    ["evaluate bm25 {copy}", "tune {index} {copy} --split test", "annotate {cross} {copy} --split test --out {out}"],
)
def test_bad_content_is_named_with_its_line(limbeck: Run, place: Place, name: str, verb: str):  # noqa: F811
    if name == "negative grades" and verb.startswith("annotate"):
        return  # it scores pairs, whatever their grades
    file, content, words = CONTENT[name]
    copy = place.root / "folders" / "copy"
    shutil.copytree(place.good["data"], copy)
    (copy / file).write_text(content)
    found = refuses(
        limbeck,
        place._replace(good={**place.good, "copy": str(copy)}),
        place._replace(good={**place.good, "copy": str(copy)}).fill(verb.split()),
        words,
    )
    shutil.rmtree(copy)
    report("contents", 1, {name: found} if found else {})


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    "verb",
    [
        "evaluate {cross} {data} --candidates {bad}",
        "annotate {cross} {data} --split test --candidates {bad} --out {out}",
    ],
)
def test_bad_runs_are_named_with_their_line(limbeck: Run, place: Place, name: str, verb: str):  # noqa: F811
    path = place.root / "files" / "run.trec"
    path.write_text(RUNS[name])
    found = refuses(limbeck, place, place.fill(verb.split(), str(path)), "run.trec")
    report("contents", 1, {name: found} if found else {})
