"""Load a model without its library's progress bars and load reports."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as hf_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the output of transformers and sentence-transformers while the block runs; errors are still shown."""
    verbosity = hf_logging.get_verbosity()
    bars = hf_logging.is_progress_bar_enabled()
    theirs = logging.getLogger("sentence_transformers")
    level = theirs.level
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    theirs.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(verbosity)
        theirs.setLevel(level)
        if bars:
            hf_logging.enable_progress_bar()
