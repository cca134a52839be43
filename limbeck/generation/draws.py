"""Random numbers that belong to one text and do not depend on the rest of the batch."""

from __future__ import annotations

import numpy as np

from limbeck.files import digest


def own_draws(seed: int, key: str, number: int) -> np.random.Generator:
    """The random numbers of version `number` of the text with id `key`."""
    return np.random.default_rng(int(digest(str(seed), key, str(number)), 16))
