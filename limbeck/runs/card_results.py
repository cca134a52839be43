"""The numbers of a student's card: its run's table, the test against another row, and speed by runtime."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import torch

from limbeck.matchers.device import chosen_device
from limbeck.processor import processor_name
from limbeck.report.formatting import listed, measure_title, p_value, share, three_digits, times
from limbeck.report.task_words import TaskWords
from limbeck.runs.results import ResultRow
from limbeck.runtimes.measure import Measured as RuntimeRow

RESULTS = "## Quality and speed"
RUNTIMES = "## Speed by runtime"


def in_short(row: ResultRow, words: TaskWords) -> str:
    """What a student keeps of its teacher's quality, and what it costs, in one sentence."""
    measure = measure_title(next(iter(row.measures)))
    said = [f"reaches {next(iter(row.measures.values())):.3f} {measure}"]
    if row.kept is not None:
        said = [f"keeps {share(row.kept)} of its teacher's {measure}{words.above_chance}"]
    if row.speedup is not None:
        said.append(f"runs at {times(row.speedup)} its teacher's speed")
    if row.size_mb is not None:
        said.append(f"has {three_digits(row.size_mb)} MB of weights")
    return f"It {listed(said)}."


def results_section(
    rows: Sequence[ResultRow],
    student: ResultRow,
    words: TaskWords,
    tested_on: str,
    warnings: Sequence[str],
    timed: str | None = None,
) -> str:
    """The table of a run with one of its students, how it was measured, and the run's warnings.

    `timed` says how times were measured, if that is not the time of re-ranking in PyTorch.
    """
    lines = [f"The task is {words.title}, measured on {tested_on}."]
    if timed is None and student.ms_per_query is not None:
        lines.append("ms/query is the time to re-rank the candidates of one query; what can be encoded ahead is.")
    lines.append(timed or f"Measured with PyTorch on {machine()}.")
    if student.runs > 1:
        lines.append(f"The student's numbers are means over {student.runs} seeds; this is the best one on dev.")
    if student.significance is not None:
        lines.append(_test(student, words))
    parts = [RESULTS, results_table(rows, student), " ".join(lines)]
    if warnings:
        parts.append("Warnings of the run:\n\n" + "\n".join(f"- {line}" for line in warnings))
    return "\n\n".join(parts)


def results_table(rows: Sequence[ResultRow], student: ResultRow) -> str:
    """A Markdown table without empty columns; the student's row is bold."""
    measures = list(dict.fromkeys(name for row in rows for name in row.measures))
    columns: dict[str, Callable[[ResultRow], str]] = {measure_title(name): partial(_measure, name) for name in measures}
    columns |= {
        "kept": lambda row: "" if row.kept is None else share(row.kept),
        "ms/query": lambda row: "" if row.ms_per_query is None else three_digits(row.ms_per_query),
        "pairs/s": lambda row: "" if row.pairs_per_second is None else f"{row.pairs_per_second:,.0f}",
        "size, MB": lambda row: "" if row.size_mb is None else three_digits(row.size_mb),
        "speed-up": lambda row: "" if row.speedup is None else f"{three_digits(row.speedup)}x",
    }
    filled = {title: cells for title, cell in columns.items() if any(cells := [cell(row) for row in rows])}
    lines = [[_bold(row.name.replace("|", "\\|"), row is student)] for row in rows]
    for cells in filled.values():
        for line, row, cell in zip(lines, rows, cells, strict=True):
            line.append(_bold(cell, row is student))
    return markdown_table(["model", *filled], lines)


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table whose first column holds names and the others numbers."""
    ruler = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [headings, ruler, *lines])


def runtimes_section(rows: Sequence[RuntimeRow], measured_on: str) -> str:
    """What `limbeck runtimes` found."""
    lines = [
        [row.runtime, f"{row.threads}", three_digits(row.single_ms), f"{row.per_second:,.0f}", f"{row.closeness:.4f}"]
        for row in rows
    ]
    table = markdown_table(["runtime", "threads", "ms per query", "texts/s in batches", "near to torch"], lines)
    told = f"On texts of {measured_on}, on {machine()}. The last column is the mean cosine to torch's vectors, or the"
    return "\n\n".join([RUNTIMES, table, f"{told} correlation with its scores."])


def machine(threads: bool = True) -> str:
    """The device that models run on here, and the number of threads of a processor."""
    device = chosen_device()
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    name, count = re.sub(r" (family|implementer)/.*", "", processor_name()), torch.get_num_threads()
    return f"{name} ({count} {'thread' if count == 1 else 'threads'})" if threads else name


def _measure(name: str, row: ResultRow) -> str:
    if name not in row.measures:
        return ""
    spread = f" ± {row.spread[name]:.3f}" if row.spread and name in row.spread else ""
    return f"{row.measures[name]:.3f}{spread}"


def _test(student: ResultRow, words: TaskWords) -> str:
    test = student.significance
    assert test is not None
    title = measure_title(next(iter(student.measures)))
    corrected = test.get("p_holm", test["p"])
    name = "p" if corrected == test["p"] else "Holm's p"
    told = f"Its {title} differs by {test['difference']:+.3f} from that of {test['against']} (95% interval"
    return f"{told} {test['low']:+.3f} to {test['high']:+.3f}, {name} {p_value(corrected)}; {words.test})."


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold and text else text
