"""A finished folder of `limbeck pairs`: the same command accepts it, any other command refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from limbeck.data import PairData, RankingData
from limbeck.data.by_kind import by_kind
from limbeck.data.written import read_written, require_unchanged
from limbeck.errors import bad_input
from limbeck.files import digest, digest_of, recover_directory, require_empty_or_absent
from limbeck.progress import say
from limbeck.stores.manifest import canonical

_REMEDY = "choose another --out, or remove it"


def any_files(out: Path) -> bool:
    """Whether the folder contains anything."""
    return out.is_dir() and any(out.iterdir())


def require_ours_or_empty(out: Path) -> None:
    """Refuse a folder that `limbeck pairs` did not write, before any work is done."""
    recover_directory(out)
    if not any_files(out) or not (out / "pairs.json").is_file():
        require_empty_or_absent(out, "choose another --out")
    elif read_written(out) is None:
        raise bad_input(out, "contains pairs of an earlier version of limbeck, without checksums", _REMEDY)


def finished(out: Path, made_from: dict[str, Any]) -> dict[str, int]:
    """The number of pairs in a finished folder, after a check that it is undamaged and has the same sources."""
    written = read_written(out)
    assert written is not None
    names = [name for name, value in made_from.items() if written.made_from.get(name) != value]
    if written.command != "pairs" or names:
        raise bad_input(out, f"contains pairs that were made with another {', '.join(names)}", _REMEDY)
    require_unchanged(out)
    say(f"{out}: is complete already")
    return {str(split): int(count) for split, count in written.result.items()}


def content_digest(data: RankingData | PairData) -> str:
    """A digest of everything that pairs are made from."""
    return by_kind(data, _digest_of_ranking, _digest_of_pairs)


def _digest_of_ranking(data: RankingData) -> str:
    return digest(data.corpus.content_digest, data.queries.content_digest, canonical(data.qrels))


def _digest_of_pairs(data: PairData) -> str:
    rows = (canonical([split, pair.texts, pair.label]) for split, pairs in data.splits.items() for pair in pairs)
    return digest_of(rows)
