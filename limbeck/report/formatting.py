"""Formats for names and numbers in a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

MEASURES = {"ndcg": "nDCG", "mrr": "MRR", "rr": "RR", "map": "MAP", "ap": "AP", "auc": "AUC", "f1": "F1", "p": "P"} | {
    "answer_recall": "Answer recall"
}


def measure_title(name: str) -> str:
    """`ndcg@10` in its usual spelling: nDCG@10; a word before it names the split: `train ndcg@10`."""
    where, space, measure = name.rpartition(" ")
    base, at, cut = measure.partition("@")
    return where + space + MEASURES.get(base.lower(), base[:1].upper() + base[1:]) + at + cut


def duration(seconds: float) -> str:
    """Seconds in readable form: 48 s, 4 min 12 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def times(factor: float) -> str:
    """A speed-up in words: 210 times, 1.7 times."""
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.1f} times"


def share(value: float) -> str:
    """A share in percent: 88%. Near 100% or above, with one more digit: 99.7%."""
    whole = f"{value:.0%}"
    return f"{value:.1%}" if whole == "100%" and value != 1 else whole


def three_digits(value: float) -> str:
    """Three significant digits without exponents, trailing zeros kept: 0.680, 1.96, 412, 25,500."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def p_value(p: float) -> str:
    """A p-value without the p, with as few digits as make sense: = 0.02, < 0.001."""
    return "<\u00a00.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"


def short_names(names: Sequence[str]) -> list[str]:
    """Names for plots: without a suffix in brackets, unless two names differ only there."""
    short = [re.sub(r"\s*\([^()]*\)$", "", name) or name for name in names]
    counts = Counter(short)
    return [cut if counts[cut] == 1 else name for cut, name in zip(short, names, strict=True)]


def cut(text: str, longest: int) -> str:
    """A text on one line; a text of more than `longest` characters is cut after a whole word, with an ellipsis."""
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else flat[:longest].rsplit(" ", 1)[0] + " …"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign; the minus is as wide as the plus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def listed(words: Sequence[str]) -> str:
    """A list in a sentence: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
