"""`pydocs:all`: `pydocs` and the documentation of the packages that come with Limbeck, some 10,000 documents.

Parsing the source of these packages takes some 10 seconds, so the result is kept in the cache folder, as a BEIR folder.
Its name depends on the versions of Python and of all packages that were read.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain

from limbeck.data.beir import load_beir, write_beir
from limbeck.data.cache import cache_directory
from limbeck.data.dataset import RankingData
from limbeck.data.docstrings import docstrings
from limbeck.data.package_docstrings import DISTRIBUTIONS, package_docstrings
from limbeck.data.pydocs import as_data_set
from limbeck.data.written import record_files
from limbeck.errors import LimbeckError
from limbeck.files import digest, directory_atomically
from limbeck.progress import say

NAME = "pydocs:all"
VERSION = "1"  # raise it when the code makes other data of the same packages


def load_all_pydocs() -> RankingData:
    """The documentation of Python, numpy and other installed packages; the same versions give the same data."""
    cache = cache_directory("pydocs")
    if cache is None:
        return _made()
    folder = cache / digest(*_versions())[:16]
    try:
        return replace(load_beir(folder), name=NAME)
    except LimbeckError:  # absent or damaged
        with directory_atomically(folder) as place:
            write_beir(_made(), place)
            record_files(place, "pydocs", {}, {})
        return replace(load_beir(folder), name=NAME)


def _made() -> RankingData:
    say("reading the documentation of the installed packages (once)")
    return as_data_set(NAME, chain(docstrings(), package_docstrings()))


def _versions() -> list[str]:
    found = [VERSION, platform.python_version()]
    for name in ("numpy", *DISTRIBUTIONS.values()):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} -")
    return found
