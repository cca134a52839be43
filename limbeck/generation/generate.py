"""Write new queries near the ones you have to a file without labels: the work of `limbeck generate`.

FILE                  the new queries: `_id`, `text`, `from` (the id of the text it was made from) and `how`
FILE.manifest.json    settings, counts, and the file's checksum
FILE.unfinished/      until FILE is complete: the work so far, one line with a checksum for each text
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.data.lines import bare_suffix, writing
from limbeck.data.queries import read_queries, text_key
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import alone_in, checksum, digest_of, make_directory, naming_disk_errors, recover_directory
from limbeck.generation.block_log import by_block, fill
from limbeck.generation.draws import own_draws
from limbeck.generation.perturb import Perturb
from limbeck.generation.sources import Source, document_source, query_source, titles
from limbeck.generation.spans import LENGTHS, Spans
from limbeck.generation.ways import Settings, Way
from limbeck.progress import say
from limbeck.stores.append_log import AppendLog
from limbeck.stores.manifest import Manifest, require_same

KIND = "limbeck queries"
SHOWN = 3  # examples

New = tuple[str, int, str]  # id of the source text, number, new query


@dataclass(frozen=True)
class Generated:
    """What `generate_queries` did."""

    out: Path
    how: str
    sources: int  # number of source texts (queries or documents)
    noun: str  # what the sources are: queries or documents
    queries: int  # number of new queries
    known: int  # left out because the data contain them already
    repeated: int  # left out because they repeat another new query
    empty: int  # left out because they are empty
    held_out: int  # queries of the split that are not used because a dev or test split has them too
    examples: tuple[tuple[str, str], ...]  # a source and a new query


def generate_queries(
    data: str | Path,
    out: str | Path,
    settings: Settings,
    model: str | None = None,
    split: str | None = None,
    draw_from: str | Path | None = None,
    batch_size: int = 8,
) -> Generated:
    """Write new queries to `out`. A kill loses at most one batch; a finished file is not changed."""
    out = Path(out)
    _check(settings, model, draw_from, out)
    source = document_source(data, split) if settings.how == "spans" else query_source(data, split)
    if not len(source.texts):
        raise LimbeckError(f"{data}: has no {source.noun} to make queries from; give other data")
    if settings.how == "sample":
        drawn = read_queries(draw_from) if draw_from is not None else titles(data)
        identity = {**settings.given(), "from": drawn.content_digest}
        job = _Job(out, source, settings.how, identity)
        return job.finished() or job.write(_sample(drawn, source, settings))
    way = _way(settings, source, model, batch_size)
    job = _Job(out, source, settings.how, way.identity())
    return job.finished() or job.run(way)


def _check(settings: Settings, model: str | None, draw_from: str | Path | None, out: Path) -> None:
    if bare_suffix(out) != ".jsonl":
        raise bad_input(out, "is not a .jsonl file", "call it e.g. queries.jsonl")
    if settings.how == "model" and model is None:
        raise LimbeckError("--how model: needs a seq2seq model; name one with --model, or use --how perturb")
    if settings.how != "model" and model is not None:
        raise LimbeckError(f"--model {model}: requires --how model; leave one of them out")
    if settings.how != "sample" and draw_from is not None:
        raise LimbeckError(f"--from {draw_from}: requires --how sample; leave one of them out")


def _way(settings: Settings, source: Source, model: str | None, batch_size: int) -> Way:
    given = settings.given()
    how = given.pop("how")
    if how == "perturb":
        return Perturb(**given)
    if how == "spans":
        return Spans(**given, lengths=source.lengths or LENGTHS)
    from limbeck.generation.neighbours import Neighbours, Perturbation
    from limbeck.generation.seq2seq import Seq2Seq

    return Neighbours(Seq2Seq.load(str(model)), Perturbation(**given), batch_size)


def _sample(drawn: Texts, source: Source, settings: Settings) -> Iterator[New]:
    """As many queries of another set as the other methods would write, without duplicates (the control of App. E)."""
    asked = wanted = settings.per_query * len(source.texts)
    rows = own_draws(settings.seed, "sample", 0).permutation(len(drawn)).tolist()
    seen = set(source.known)
    for row in rows:
        key, text = drawn.id_at(row), drawn.text_at(row)
        if wanted and text_key(text) not in seen:
            seen.add(text_key(text))
            wanted -= 1
            yield key, 0, text
    if wanted:
        say(f"only {asked - wanted:,} of {asked:,} queries could be drawn: there are no more that differ")


class _Job:
    """One file of new queries while it is being written."""

    def __init__(self, out: Path, source: Source, how: str, identity: dict[str, Any]) -> None:
        self.out, self.source, self.how = out, source, how
        self._work = out.with_name(f"{out.name}.unfinished")
        self._manifest = out.with_name(f"{out.name}.manifest.json")
        texts = {"texts": source.texts.content_digest, "known": digest_of(sorted(source.known))}
        self._wanted = Manifest(KIND, {"how": how, **identity, **texts}, {})

    def finished(self) -> Generated | None:
        """The result of an earlier call with the same settings, if any; a file from elsewhere is refused."""
        recover_directory(self.out)  # clean up after a killed writer
        begun = (self._work / "generate.json").exists()
        if begun:
            self._require_same(self._work, self._work / "generate.json", f"remove {self._work}")
        if not self.out.exists() or (begun and not self._manifest.exists()):
            return None
        if not self.out.is_file():
            raise bad_input(self.out, "is a directory", "name a file with --out")
        if not self._manifest.exists():
            raise bad_input(self.out, "exists, and `limbeck generate` did not write it", "choose another --out")
        stored = self._require_same(self.out, self._manifest, f"remove {self.out}")
        if stored.layout.get("checksum") != checksum(self.out):
            problem = "has changed since it was written"
            raise bad_input(self.out, problem, "remove it to make it again, or choose another --out")
        shutil.rmtree(self._work, ignore_errors=True)
        try:
            result = dict(stored.layout["result"])
            examples = tuple((source, new) for source, new in result.pop("examples"))
            return Generated(out=self.out, examples=examples, **result)
        except (KeyError, TypeError, ValueError) as error:
            raise bad_input(self._manifest, "is damaged", f"remove it and {self.out}") from error

    def run(self, way: Way) -> Generated:
        """Write the missing queries to the log, then all of them to the file."""
        texts = self.source.texts
        self._claim()
        with alone_in(self._work):
            log = AppendLog(self._work / "queries.jsonl", checked=True)
            fill(texts, log, lambda rows: way.write([texts.record_at(row) for row in rows]), way.batch_size)
            return self.write(self._logged(log))

    def _claim(self) -> None:
        """Create or reopen the folder of unfinished work; it must be ours, because it is removed in the end."""
        manifest = self._work / "generate.json"
        if manifest.exists():
            return
        if self._work.is_dir() and any(not file.name.startswith(".") for file in self._work.iterdir()):
            raise bad_input(self._work, "exists, and `limbeck generate` did not make it", "choose another --out")
        with naming_disk_errors(self._work):
            make_directory(self._work)
        self._wanted.save(manifest)

    def write(self, new: Iterable[New]) -> Generated:
        """Write the distinct new queries and the manifest, and remove the unfinished work."""
        distinct = _Distinct(new, self.source.known)
        first: list[New] = []
        with writing(self.out) as handle:
            for key, number, text in distinct:
                first += [(key, number, text)] if len(first) < SHOWN else []
                record = {"_id": f"{key}-{self.how}-{number + 1}", "text": text, "from": key, "how": self.how}
                handle.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
            if not first:
                raise self._nothing(distinct)
        done = self._result(distinct, first)
        result = {name: value for name, value in asdict(done).items() if name != "out"}
        replace(self._wanted, layout={"result": result, "checksum": checksum(self.out)}).save(self._manifest)
        shutil.rmtree(self._work, ignore_errors=True)
        return done

    def _logged(self, log: AppendLog) -> Iterator[New]:
        keys = iter(self.source.texts)
        for block in by_block(self.source.texts, log, "queries"):
            for queries, key in zip(block, keys, strict=False):
                yield from ((key, number, text) for number, text in enumerate(queries))

    def _result(self, distinct: _Distinct, first: list[New]) -> Generated:
        texts = self.source.texts
        made = self.how != "sample"  # sampled queries are not made from the source texts
        examples = tuple((texts[key] if made else "", text) for key, _, text in first)
        return Generated(
            self.out, self.how, len(texts), self.source.noun, distinct.kept, distinct.known, distinct.repeated,
            distinct.empty, self.source.held_out, examples,
        )  # fmt: skip

    def _nothing(self, distinct: _Distinct) -> LimbeckError:
        shutil.rmtree(self._work, ignore_errors=True)
        remedies = {"model": "raise --noise or --mask", "perturb": "raise --drop or --swap", "sample": "name others"}
        found = f"{distinct.known:,} are known already, {distinct.repeated:,} repeated, {distinct.empty:,} empty"
        remedy = remedies.get(self.how, "give other documents")
        return bad_input(
            self.out, f"no new queries from {len(self.source.texts):,} {self.source.noun}: {found}", remedy
        )

    def _require_same(self, place: Path, manifest: Path, remedy: str) -> Manifest:
        stored = Manifest.load(manifest, KIND)
        require_same(place, replace(stored, layout={}), self._wanted, f"choose another --out, or {remedy}")
        return stored


class _Distinct:
    """The distinct new queries, and counts of those that were left out."""

    def __init__(self, new: Iterable[New], known: frozenset[str]) -> None:
        self._new, self._known = new, known
        self.kept = self.known = self.repeated = self.empty = 0

    def __iter__(self) -> Iterator[New]:
        seen: set[str] = set()
        for each in self._new:
            key = text_key(each[2])
            if not key:
                self.empty += 1
            elif key in self._known:
                self.known += 1
            elif key in seen:
                self.repeated += 1
            else:
                seen.add(key)
                self.kept += 1
                yield each
