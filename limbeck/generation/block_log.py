"""Lists of texts for every row of a table, written to a log during the work, so that a kill loses at most one batch.

Rows are processed in blocks. Inside a block they are sorted by length, which saves padding. The log has the blocks in
order, so restoring the order of the table needs only one block in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from limbeck.data.texts import Texts
from limbeck.errors import bad_input
from limbeck.progress import progress
from limbeck.stores.append_log import AppendLog

BLOCK = 1024


def blocks(texts: Texts) -> list[range]:
    """The rows of a table in blocks."""
    return [range(start, min(start + BLOCK, len(texts))) for start in range(0, len(texts), BLOCK)]


def missing(texts: Texts, block: range, log: AppendLog) -> list[int]:
    """The rows of a block that are not in the log yet. Blocks are logged in order: only the last may be incomplete."""
    if len(log) >= block.stop:
        return []
    done = {record.get("_id") for record in log.records(block.start)}
    return [row for row, key in zip(block, texts.ids_at(block), strict=True) if key not in done]


def by_block(texts: Texts, log: AppendLog, field: str) -> Iterator[list[list[Any]]]:
    """The logged lists of every row, in the order of the table, one block at a time."""
    records = log.records()
    for block in blocks(texts):
        found = {record.get("_id"): record.get(field) for record in islice(records, len(block))}
        lists = [found.get(key) for key in texts.ids_at(block)]
        if not all(isinstance(each, list) for each in lists):
            problem = f"is damaged between lines {block.start + 1} and {block.stop}"
            raise bad_input(log.path, problem, f"remove {log.path} and run the same command again")
        yield lists  # type: ignore[misc]


def fill(texts: Texts, log: AppendLog, write: Callable[[list[int]], list[list[str]]], batch_size: int) -> int:
    """Write the queries of all rows that are not in the log; returns how many rows were written."""
    before = len(log)
    with progress("Generating queries", len(texts)) as advance:
        advance(before)
        for block in blocks(texts):
            rows = sorted(missing(texts, block, log), key=lambda row: len(texts.text_at(row)))
            for start in range(0, len(rows), batch_size):
                batch = rows[start : start + batch_size]
                lists = zip(texts.ids_at(batch), write(batch), strict=True)
                log.append({"_id": key, "queries": queries} for key, queries in lists)
                advance(len(batch))
    return len(log) - before
