"""Addresses of Milvus, and whether the user has named them.

    milvus://HOST:PORT/COLLECTION         a server
    milvus+https://HOST:PORT/COLLECTION   a server behind TLS
    milvus:///PATH/TO/FILE.db             milvus-lite: one process at a time, listens on 127.0.0.1 only

An index contains the address of its vectors, and an index may come from anywhere. So an address from an index is not
used, and no token is sent there, unless the user has named it: with `--store` or `--milvus`, in $LIMBECK_MILVUS
(several are separated by commas), or in Python with `trust`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from limbeck.errors import LimbeckError

PLAIN, TLS = "milvus://", "milvus+https://"
SCHEMES = (PLAIN, TLS)
VARIABLE = "LIMBECK_MILVUS"
LITE_COLLECTION = "limbeck"
_LOCAL = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?")
_ADDRESS = re.compile(r"milvus(?P<tls>\+https)?://(?P<host>[^/@\s]+)/(?P<collection>[A-Za-z_]\w*)")
_trusted: set[str] = set()


@dataclass(frozen=True)
class Address:
    """The address of a collection."""

    uri: str
    collection: str

    @classmethod
    def parse(cls, text: str) -> Address:
        if text.startswith(f"{PLAIN}/"):
            file = text.removeprefix(PLAIN)
            if not file.endswith(".db"):
                raise LimbeckError(
                    f"{text}: the name of a milvus-lite file must end in .db; write milvus:///path/to/file.db"
                )
            return cls(file, LITE_COLLECTION)
        match = _ADDRESS.fullmatch(text)
        if match is None:
            forms = "milvus://HOST:PORT/COLLECTION, milvus+https://HOST:PORT/COLLECTION, or milvus:///FILE.db"
            raise LimbeckError(f"{text}: is not a Milvus address; write {forms}")
        return cls(f"{'https' if match['tls'] else 'http'}://{match['host']}", match["collection"])

    @property
    def is_file(self) -> bool:
        """Whether it is a file of milvus-lite instead of a server."""
        return not self.uri.startswith(("http://", "https://"))

    @property
    def is_readable_by_others(self) -> bool:
        """Whether data would cross a network unencrypted."""
        return self.uri.startswith("http://") and _LOCAL.fullmatch(self.uri.removeprefix("http://")) is None

    @property
    def server(self) -> str:
        """The part that the user has to name: the server without its collection, or the file."""
        if self.is_file:
            return f"{PLAIN}{self.uri}"
        return self.uri.replace("https://", TLS).replace("http://", PLAIN)


def is_milvus(store: object) -> bool:
    """Whether a store is an address instead of a folder."""
    return str(store or "").startswith(SCHEMES)


def trust(address: str) -> None:
    """Allow this process to use a Milvus that the user named, with or without a collection."""
    _trusted.add(_server(address))


def require_trusted(store: str, index: str) -> None:
    """Refuse an address that only an index contains."""
    server = Address.parse(store).server
    named = {_server(part) for part in os.environ.get(VARIABLE, "").split(",") if part.strip()}
    if server not in _trusted | named:
        problem = f"its vectors are in Milvus at {server}, which you have not named"
        raise LimbeckError(f"{index}: {problem}; if you trust it, add --milvus {server}, or set {VARIABLE}")


def _server(text: str) -> str:
    """The server of an address; scheme and collection are optional."""
    text = text.strip() if text.strip().startswith(SCHEMES) else f"{PLAIN}{text.strip()}"
    scheme = TLS if text.startswith(TLS) else PLAIN
    whole = text.startswith(f"{PLAIN}/") or "/" in text.removeprefix(scheme).rstrip("/")
    return Address.parse(text if whole else f"{text.rstrip('/')}/{LITE_COLLECTION}").server
