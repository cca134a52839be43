"""What the processor is called, and what it can multiply: bytes without overflow, bfloat16 without emulation."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

# x86 without these adds pairs of byte products in 16 bits, which 8-bit weights overflow. ARM adds them in 32 bits.
EXACT_SUMS = {"avx512_vnni", "avx_vnni", "asimddp"}
BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last one is ARM's
NUMBERS = {
    "family/model/stepping": ("cpu family", "model", "stepping"),
    "implementer/part/variant/revision": ("CPU implementer", "CPU part", "CPU variant", "CPU revision"),
}
_CPUINFO = Path("/proc/cpuinfo")


@cache
def _cpuinfo() -> dict[str, str]:
    """The facts of the first processor that Linux lists; nothing elsewhere."""
    try:
        first = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def cores() -> int:
    """The number of cores for this process; in a container or under taskset fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """Such as "AMD EPYC 7B13"; a choice that was measured on one processor says nothing of another.

    ARM's Linux has numbers instead of a name. Other systems give little more than the architecture, so the number of
    cores helps to tell processors apart.
    """
    facts = _cpuinfo()
    if not facts:
        return " ".join(filter(None, [platform.processor(), platform.machine(), f"{os.cpu_count()} cores"]))
    name = facts.get("model name") or platform.machine()
    found = {title: [facts[key] for key in keys if key in facts] for title, keys in NUMBERS.items()}
    return " ".join([name, *(f"{title} {'/'.join(values)}" for title, values in found.items() if values)])


def _flags() -> set[str]:
    facts = _cpuinfo()
    return set((facts.get("flags") or facts.get("Features") or "").split())


def weight_bits() -> int:
    """Bits of a weight in 8-bit products: 8 where sums are exact, else 7."""
    return 8 if _flags() & EXACT_SUMS else 7


def emulates_bf16() -> bool:
    """Whether products in bfloat16 are known to run without instructions of their own, up to 100 times slower."""
    flags = _flags()
    return bool(flags) and not flags & BF16
