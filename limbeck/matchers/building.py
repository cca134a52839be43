"""Build a matcher from a config."""

from __future__ import annotations

from limbeck.matchers.base import Matcher
from limbeck.matchers.config import MatcherConfig, architecture_of
from limbeck.matchers.device import chosen_device
from limbeck.matchers.quiet import quiet
from limbeck.matchers.starts import local_start


def build(config: MatcherConfig) -> Matcher:
    """Build the matcher of a config; new parts are initialised with torch's global generator.

    It is built on the CPU, so that a seed gives the same weights everywhere, then moved to the chosen device.
    """
    with quiet():
        return architecture_of(config.kind).build(config, local_start(config)).to(chosen_device())
