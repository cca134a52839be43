"""`pydocs`, the built-in data set: find the documentation for a one-line summary.

Every docstring with more than one paragraph gives a query (its summary) and a document (its qualified name, then the
rest). Nothing is downloaded: the texts come from the installed Python and numpy. Without the name, many documents
would be ambiguous ("Returns the number of bytes read"). The name helps a model, which relates `copyfile` to copying,
more than it helps a word matcher.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from limbeck.data.dataset import RankingData, Texts
from limbeck.data.docstrings import Docstring, docstrings
from limbeck.data.package_docstrings import DISTRIBUTIONS

QUERY_WORDS = range(3, 31)
FEWEST_DOCUMENT_WORDS = 8
NEAR_DUPLICATE = 0.8
# Parts of numpy that share little with the rest. The rest is one group, so that copies do not leak between splits.
SEPARATE_PACKAGES = ("numpy.fft", "numpy.linalg", "numpy.polynomial", "numpy.random")
SPLIT_SALT = b"329"  # chosen so that no package dominates the dev or test split

_SIGNATURE = re.compile(r"[\w.]+\(")
_SIGNATURE_END = re.compile(r"\)\s*$|\)\s*->|\)\s+--?\s|\)$", re.MULTILINE)
_NAME_BEFORE = re.compile(r"^[\w.]+\([^()]*\)(?::| -+| ->) ")
_SENTENCE = re.compile(r"(?<=[\w)\]'\"`][.!?])\s+(?=[A-Z'\"`(])")
_UNDERLINED = re.compile(r"^(?P<title>[A-Z][^\n]{1,40})\n[ \t]*[-=~]{3,}[ \t]*$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*\.\. .*$\n?", re.MULTILINE)
_LEADING_SECTIONS = ("", "Notes")
_DROPPED_SECTIONS = ("See Also", "References")


class Entry(NamedTuple):
    """A query and its document, with their qualified name; both also as plain words, to find copies."""

    module: str
    name: str
    query: str
    document: str
    query_words: str
    document_words: str


def load_pydocs() -> RankingData:
    """The built-in set, split by module; the same installed versions give the same data."""
    return as_data_set("pydocs", docstrings())


def as_data_set(name: str, found: Iterable[Docstring]) -> RankingData:
    """Summaries as queries and the rest of each docstring as its document, split by module."""
    entries = _without_copies([entry for docstring in found if (entry := _entry(docstring))])
    asked = Counter(entry.query_words for entry in entries)
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, dict[str, int]]] = {"train": {}, "dev": {}, "test": {}}
    for entry in entries:
        if asked[entry.query_words] == 1 and len(entry.query_words.split()) in QUERY_WORDS:
            query_id = f"q:{entry.name}"
            queries[query_id] = entry.query
            qrels[split_of(entry.module)][query_id] = {entry.name: 1}
    corpus = Texts.from_dict({entry.name: f"{entry.name}\n{entry.document}" for entry in entries})
    return RankingData(name, corpus=corpus, queries=Texts.from_dict(queries), qrels=qrels)


def split_of(module: str) -> str:
    """The split of a module: a hash of its group of modules, so that a new version does not move other groups."""
    draw = int.from_bytes(hashlib.blake2b(_group(module).encode(), digest_size=8, salt=SPLIT_SALT).digest(), "big")
    return "test" if draw < 0.2 * 2**64 else "dev" if draw < 0.32 * 2**64 else "train"


def _group(module: str) -> str:
    """The modules that share a split: a top-level package, or a part of a package that is large."""
    package, *inner = module.split(".")
    if package in DISTRIBUTIONS:
        return ".".join([package, *inner[:-1]][:3])
    return next((part for part in SEPARATE_PACKAGES if f"{module}.".startswith(f"{part}.")), package)


def summary_and_rest(text: str) -> tuple[str, str] | None:
    """A docstring as (summary, rest), or None if it has a single paragraph; leading signatures are dropped.

    A first paragraph is cut after its first sentence if it is too long for a query, or if it is the only one besides
    a signature.
    """
    paragraphs = [p for p in re.split(r"\n[ \t]*\n", text.strip()) if p.strip()]
    if len(paragraphs) < 2:
        return None
    while paragraphs and _SIGNATURE.match(paragraphs[0]) and _SIGNATURE_END.search(paragraphs[0]):
        paragraphs.pop(0)
    if not paragraphs:
        return None
    summary, *rest = paragraphs
    if not rest or len(summary.split()) >= QUERY_WORDS.stop:
        summary, *more = _SENTENCE.split(summary, maxsplit=1)
        rest = more + rest
    summary = _NAME_BEFORE.sub("", " ".join(summary.split()))
    return summary, _prose_first("\n\n".join(rest))


def _prose_first(text: str) -> str:
    """Reorder underlined sections so that explanation comes before parameter lists; drop links to other entries.

    A student reads the first 64 tokens or so. "See Also" repeats the summaries of other entries, which would make
    this document a wrong answer to their queries.
    """
    pieces = _UNDERLINED.split(text)
    sections = [("", pieces[0]), *zip((title.strip() for title in pieces[1::2]), pieces[2::2], strict=True)]
    kept = [(title, body.strip("\n")) for title, body in sections if title not in _DROPPED_SECTIONS and body.strip()]
    kept.sort(key=lambda section: _LEADING_SECTIONS.index(section[0]) if section[0] in _LEADING_SECTIONS else 2)
    whole = "\n\n".join(body if title in _LEADING_SECTIONS else f"{title}\n{body}" for title, body in kept)
    return re.sub(r"\n{3,}", "\n\n", _DIRECTIVE.sub("", whole)).strip()


def _entry(docstring: Docstring) -> Entry | None:
    parts = summary_and_rest(docstring.text)
    if parts is None:
        return None
    query, document = parts
    query_words, document_words = _plain(query), _plain(document)
    if _prose_words(document) < FEWEST_DOCUMENT_WORDS or query_words in document_words:
        return None
    name = docstring.name.removesuffix(".__init__")
    return Entry(docstring.module, name, query, document, query_words, document_words)


def _prose_words(document: str) -> int:
    """Words outside interactive examples."""
    prose = [part for part in document.split("\n\n") if ">>>" not in part]
    return len(re.findall(r"[^\W\d]\w+", " ".join(prose)))


def _plain(text: str) -> str:
    """Lower-case words without punctuation; texts with the same words count as equal."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _without_copies(entries: list[Entry]) -> list[Entry]:
    """Keep the first of all entries that share a name or almost all words of their documents (Jaccard similarity).

    Two sets that are this similar share at least one of the rarest fifth of their words, so only those are looked up.
    """
    documents = [frozenset(entry.document_words.split()) for entry in entries]
    frequency = Counter(word for document in documents for word in document)
    kept: list[int] = []
    holders: dict[str, list[int]] = defaultdict(list)
    names: set[str] = set()
    for row, (entry, words) in enumerate(zip(entries, documents, strict=True)):
        rarest = sorted(words, key=lambda word: (frequency[word], word))
        rarest = rarest[: len(words) - math.ceil(NEAR_DUPLICATE * len(words)) + 1]
        rivals = {rival for word in rarest for rival in holders[word]}
        if entry.name in names or any(_are_copies(words, documents[rival]) for rival in rivals):
            continue
        kept.append(row)
        names.add(entry.name)
        for word in rarest:
            holders[word].append(row)
    return [entries[row] for row in kept]


def _are_copies(first: frozenset[str], second: frozenset[str]) -> bool:
    if min(len(first), len(second)) < NEAR_DUPLICATE * max(len(first), len(second)):
        return False
    shared = len(first & second)
    return shared >= NEAR_DUPLICATE * (len(first) + len(second) - shared)
