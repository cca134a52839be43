"""Vectors in Milvus, for corpora that are too large for one machine; the same interface as for faiss.

`limbeck.search.milvus_address` describes addresses. A token, if the server needs one, is read from $MILVUS_TOKEN and
only sent to a server that the user named. Reading never creates anything.

A vector has a permanent key. The manifest of the index lists the valid keys: vectors that a killed command left in the
collection are not found, and the next command overwrites them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.progress import progress, say
from limbeck.search.dense import BREADTHS, CONSTRUCTION, NEIGHBOURS, VectorSource, list_count, require_dim, rising_lists
from limbeck.search.exact import exact_search
from limbeck.search.milvus_address import Address

KINDS = {"flat": "FLAT", "hnsw": "HNSW", "ivf-sq8": "IVF_SQ8"}
LITE_LISTS = 128  # milvus-lite always makes this many lists
MOST = 16_384  # maximum results of one search in Milvus
FEW = 1000  # up to this many vectors are compared here instead of searched with an index
_BLOCK = 1000
_OWNER = "limbeck.owner"


class MilvusIndex:
    """The vectors of one collection: row i has the key `keys[i]`; keys ascend."""

    def __init__(self, store: str, keys: np.ndarray, dim: int, kind: str, effort: int | None = None) -> None:
        self.store, self.kind, self.effort, self.dim = store, kind, effort, dim
        self.keys = np.asarray(keys, dtype=np.int64)
        self._address = Address.parse(store)
        self._client = connect(store)
        self._lists = list_count(len(self.keys))

    def __len__(self) -> int:
        return len(self.keys)

    def efforts(self) -> list[int | None]:
        if self.kind == "hnsw":
            return list(BREADTHS)
        return rising_lists(max(self._lists, LITE_LISTS)) if self.kind == "ivf-sq8" else [None]

    def require_complete(self, alive: int) -> None:
        """Refuse a collection that does not exist, has vectors of another size, or has lost some."""
        dim, count = _described(self._client, self._address)
        if dim is None:
            raise LimbeckError(f"{self.store}: has no such collection; start the server it is on, or index again")
        if dim != self.dim:
            problem = f"has vectors of {dim} numbers, but the index has {self.dim}"
            raise LimbeckError(f"{self.store}: {problem}; name another collection, or build the index again")
        if count < alive:
            problem = f"has {count:,} vectors, but the index has {alive:,}"
            raise LimbeckError(f"{self.store}: {problem}; build the index again")

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        queries = require_dim(queries, self.dim)
        known = len(self) if allowed is None else int(np.count_nonzero(allowed))
        allowed = None if known == len(self) else allowed
        k = min(k, known, MOST)
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        if k == 0 or not len(queries):
            return rows, scores
        if allowed is not None and known <= FEW:
            places = np.flatnonzero(allowed)
            exact, order = exact_search(queries, [self.take(places)], k)
            return places[order], exact
        ask = k
        while True:
            lists = [self._known(hits, allowed) for hits in self._ask(queries, ask)]
            if ask >= min(MOST, len(self)) or all(len(found) >= k for found, _ in lists):
                break
            ask = min(MOST, len(self), 4 * ask)
        for at, (found, given) in enumerate(lists):
            order = np.lexsort((found, -given))[:k]
            rows[at, : len(order)], scores[at, : len(order)] = found[order], given[order]
        return rows, scores

    def take(self, rows: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)
        with naming_milvus_errors(self.store):
            for start in range(0, len(rows), _BLOCK):
                wanted = self.keys[rows[start : start + _BLOCK]].tolist()
                found = self._client.get(self._address.collection, ids=wanted, output_fields=["row", "vector"])
                by_key = {int(hit["row"]): hit["vector"] for hit in found}
                vectors[start : start + len(wanted)] = [by_key[key] for key in wanted]
        return vectors

    def _ask(self, queries: np.ndarray, limit: int) -> list[Any]:
        parameters = {"hnsw": {"ef": max(limit, self.effort or 64)}, "ivf-sq8": {"nprobe": self.effort or 8}}
        with naming_milvus_errors(self.store):
            return self._client.search(
                self._address.collection,
                data=list(queries),
                limit=limit,
                search_params={"metric_type": "IP", "params": parameters.get(self.kind, {})},
            )

    def _known(self, hits: Any, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Rows and scores of the valid hits."""
        keys = np.array([int(hit["row"]) for hit in hits], dtype=np.int64)
        scores = np.array([hit["distance"] for hit in hits], dtype=np.float32)
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        good = self.keys[rows] == keys
        if allowed is not None:
            good &= allowed[rows]
        return rows[good], scores[good]


def fill_collection(store: str, kind: str, vectors: VectorSource, owner: str, first_key: int = 0) -> np.ndarray:
    """Insert vectors into a collection with keys from `first_key` on, and return the keys.

    A new collection gets the name `owner`; a collection with another name is refused.
    """
    address = Address.parse(store)
    client = require_own(store, owner)
    with naming_milvus_errors(store):
        if not client.has_collection(address.collection):
            _create(client, address, kind, vectors.dim, list_count(len(vectors)), owner)
        with progress("Sending vectors to Milvus", len(vectors)) as advance:
            for start in range(0, len(vectors), _BLOCK):
                rows = np.arange(start, min(start + _BLOCK, len(vectors)))
                block = vectors.take(rows)
                records = [
                    {"row": first_key + int(row), "vector": vector} for row, vector in zip(rows, block, strict=True)
                ]
                client.upsert(address.collection, records)
                advance(len(rows))
        client.flush(address.collection)
    return np.arange(first_key, first_key + len(vectors), dtype=np.int64)


def require_own(store: str, owner: str, create: bool = True) -> Any:
    """A client, after Milvus has answered and the collection is missing or has the owner's name."""
    address, client = Address.parse(store), connect(store, create)
    with naming_milvus_errors(store):
        if client.has_collection(address.collection) and owner not in _owners(client, address):
            remedy = "name another collection, or drop that one in Milvus"
            raise LimbeckError(f"{store}: has a collection that belongs to another index; {remedy}")
    return client


def remove_keys(store: str, keys: np.ndarray, owner: str) -> None:
    """Delete vectors that no manifest lists any more; never from a collection of another index."""
    address, client = Address.parse(store), require_own(store, owner, create=False)
    with naming_milvus_errors(store):
        client.load_collection(address.collection)
        for start in range(0, len(keys), _BLOCK):
            client.delete(address.collection, ids=keys[start : start + _BLOCK].tolist())


def require_milvus_kind(kind: str) -> str:
    """The name of an index kind in Milvus."""
    if kind not in KINDS:
        raise LimbeckError(f"Milvus has no index of kind {kind!r} here; use {', '.join(KINDS)}")
    return KINDS[kind]


def connect(store: str, create: bool = False) -> Any:
    """A client; only this function imports pymilvus. Without `create`, a missing file is not created."""
    address = Address.parse(store)
    if address.is_file and not create and not Path(address.uri).exists():
        raise LimbeckError(f"{store}: no such file; put it there, or build the index again")
    try:
        from pymilvus import MilvusClient
    except ImportError as error:
        raise LimbeckError(f"{store}: pymilvus is not installed; run `pip install 'limbeck[milvus]'`") from error
    for name in ("pymilvus", "grpc"):  # they also log tracebacks of errors that they raise
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if address.is_file:
        Path(address.uri).parent.mkdir(parents=True, exist_ok=True)
    token = "" if address.is_file else os.environ.get("MILVUS_TOKEN", "")
    if token and address.is_readable_by_others:
        say(f"{store}: the token crosses the network unencrypted; write milvus+https:// if the server supports TLS")
    with naming_milvus_errors(store):
        return MilvusClient(address.uri, token=token, timeout=10)


@contextmanager
def naming_milvus_errors(store: str) -> Iterator[None]:
    """Turn any error of Milvus into one line with its address."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        reason = " ".join(str(error.message).split())[:160]
        raise LimbeckError(
            f"{store}: Milvus says: {reason}; check the address, and that no other process uses it"
        ) from error


def _described(client: Any, address: Address) -> tuple[int | None, int]:
    """The dimension and number of vectors; None and 0 without the collection."""
    with naming_milvus_errors(address.uri):
        if not client.has_collection(address.collection):
            return None, 0
        client.load_collection(address.collection)  # a restarted server has nothing in memory
        fields = client.describe_collection(address.collection)["fields"]
        (vector,) = [field for field in fields if field["name"] == "vector"] or [{"params": {"dim": -1}}]
        count = client.query(address.collection, filter="", output_fields=["count(*)"])[0]["count(*)"]
        return int(vector["params"]["dim"]), int(count)


def _create(client: Any, address: Address, kind: str, dim: int, lists: int, owner: str) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, description=owner)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
    how = {"hnsw": {"M": NEIGHBOURS, "efConstruction": CONSTRUCTION}, "ivf-sq8": {"nlist": lists}}
    index = client.prepare_index_params()
    index.add_index("vector", index_type=require_milvus_kind(kind), metric_type="IP", params=how.get(kind, {}))
    # milvus-lite stores no descriptions, and a server may reject unknown properties
    properties = {_OWNER: owner} if address.is_file else {}
    client.create_collection(
        address.collection, schema=schema, index_params=index, consistency_level="Strong", properties=properties
    )


def _owners(client: Any, address: Address) -> tuple[str, str]:
    found = client.describe_collection(address.collection)
    return found.get("description", ""), (found.get("properties") or {}).get(_OWNER, "")
