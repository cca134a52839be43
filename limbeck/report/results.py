"""The result of a run: the main sentence, the table of all models, quality against latency."""

from __future__ import annotations

from limbeck.report.blocks import Block, Cell, Column, Figures, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.formatting import measure_title, p_value, share, short_names, three_digits, times
from limbeck.report.plots import Point, Scatter
from limbeck.report.run_files import Metrics, ModelRow, RunFiles, Significance
from limbeck.report.task_words import words_of

NEARLY_THE_BEST = 0.01
MOST_COLUMNS = 11  # columns that fit on a page of 1,200 pixels
Columns = dict[Column, list[Cell]]


def best_student(rows: list[ModelRow], measure: str) -> ModelRow | None:
    """The fastest student whose quality is within 0.01 of the best student's."""
    students = [row for row in rows if row.kind == "student" and measure in row.measures]
    if not students:
        return None
    top = max(row.measures[measure] for row in students)
    good = [row for row in students if row.measures[measure] >= top - NEARLY_THE_BEST * abs(top)]
    return max(good, key=lambda row: (row.speedup or 0.0, row.measures[measure]))


def headline(metrics: Metrics) -> str:
    """The main result in one sentence."""
    measure = metrics.measure
    if measure is None:
        return ""
    student = best_student(metrics.rows, measure)
    if student is None:
        best = max((row for row in metrics.rows if measure in row.measures), key=lambda row: row.measures[measure])
        return f"{best.name} reaches {measure_title(measure)} {best.measures[measure]:.3f}."
    short = dict(zip([row.name for row in metrics.rows], short_names([row.name for row in metrics.rows]), strict=True))
    name = short[student.name]
    title, speed = measure_title(measure), _speed(student.speedup)
    if student.kept is None:
        teacher = next((row for row in metrics.rows if row.kind == "teacher" and measure in row.measures), None)
        beside = f" (teacher {teacher.measures[measure]:.3f})" if teacher is not None else ""
        return f"{name} reaches {title} {student.measures[measure]:.3f}{beside}{speed}."
    above = words_of(metrics).above_chance
    if above and not student.kept:
        return f"{name} does no better than chance: {title} {student.measures[measure]:.3f}."
    verb = "keeps" if student.kept <= 1 else "reaches"
    return f"{name} {verb} {share(student.kept)} of the teacher's {title}{above}{speed}."


def _speed(speedup: float | None) -> str:
    if speedup is None:
        return ""
    return f" at {times(speedup)} its speed" if speedup >= 1 else " but is slower than its teacher"


def result(run: RunFiles) -> Section | None:
    """The headline, and the numbers behind it."""
    metrics = run.metrics
    sentence = headline(metrics)
    if not sentence or metrics.measure is None:
        return None
    blocks: list[Block] = [Text(sentence, lead=True)]
    student = best_student(metrics.rows, metrics.measure)
    teacher = next((row for row in metrics.rows if row.kind == "teacher"), None)
    if student is not None:
        blocks.append(Figures(_figures(student, teacher, metrics.measure)))
        if student.significance is not None:
            test = student.significance
            direction = "above" if test.difference >= 0 else "below"
            blocks.append(
                Text(
                    f"It is {abs(test.difference):.3f} {direction} {test.against} in {measure_title(metrics.measure)} "
                    f"(95% interval {test.low:+.3f} to {test.high:+.3f}, {_corrected(test)})."
                )
            )
    blocks += [Text(f"Warning: {line}") for line in metrics.warnings]
    if metrics.note:
        blocks.append(Text(metrics.note))
    return Section("Result", blocks)


def _corrected(test: Significance) -> str:
    """The p-value, corrected for the number of students if this one was selected by its result."""
    if test.p_holm is None or test.p_holm == test.p:
        return f"p\u00a0{p_value(test.p)}"
    return f"Holm's p\u00a0{p_value(test.p_holm)}"


def _figures(student: ModelRow, teacher: ModelRow | None, measure: str) -> list[tuple[str, str, str]]:
    """The student's numbers, each next to the teacher's."""
    rows = [student, teacher] if teacher is not None else [student]
    quantities = [
        (measure_title(measure), "", [row.measures.get(measure) for row in rows]),
        ("per query", " ms", [row.ms_per_query for row in rows]),
        ("pairs per second", "", [row.pairs_per_second for row in rows]),
        ("of weights", " MB", [row.size_mb for row in rows]),
    ]
    tiles = []
    for label, unit, (mine, *others) in quantities:
        if mine is not None:
            detail = "".join(f"teacher {three_digits(other)}{unit}" for other in others if other is not None)
            tiles.append((three_digits(mine) + unit, label, detail))
    return tiles


def comparison(run: RunFiles) -> Section | None:
    """The table of all models, without empty columns; if it is too wide, it becomes two tables."""
    rows = run.metrics.rows
    if not rows:
        return None
    chosen: Columns = {Column("Chosen", help="The setting that was best on dev"): [row.chosen for row in rows]}
    quality, cost = _filled(_quality(rows)), _filled(_cost(rows))
    chosen = _filled(chosen)
    caption = (
        "Square: teacher. Diamond: baseline. Circle: student. The best student of a column is highlighted; "
        "click a heading to sort."
    )
    if 1 + len(chosen) + len(quality) + len(cost) <= MOST_COLUMNS or not cost:
        blocks: list[Block] = [_models(rows, chosen | quality | cost, caption)]
    else:
        blocks = [
            _models(rows, quality, caption),
            _models(rows, chosen | cost, "How much of the teacher's quality they keep, and what they cost."),
        ]
    words = words_of(run.metrics)
    tests = _tests(rows, words.test)
    blocks += [] if tests is None else [tests]
    blocks += [Text(f"Failed: {row.name}, {reason}.") for row in rows for reason in row.failed or []]
    return Section("Comparison", blocks, f"All models on the same test {words.examples}.")


def _filled(columns: Columns) -> Columns:
    return {column: cells for column, cells in columns.items() if any(cell is not None for cell in cells)}


def _models(rows: list[ModelRow], columns: Columns, caption: str) -> Table:
    """A table of all models, each marked by its kind."""
    found: Columns = {Column("Model"): [row.name for row in rows], **columns}
    cells = zip(rows, *found.values(), strict=True)
    marked = [TableRow(values, row.kind, competes=row.kind == "student") for row, *values in cells]
    return Table(list(found), marked, caption)


def _quality(rows: list[ModelRow]) -> Columns:
    """Measures with their cells; the first is followed by its spread over seeds."""
    columns: Columns = {}
    for name in dict.fromkeys(name for row in rows for name in row.measures):
        columns[Column(measure_title(name), ".3f", "high")] = [row.measures.get(name) for row in rows]
        if name == next(iter(rows[0].measures), None):
            spread = Column("±", ".3f", help=f"Standard deviation of {measure_title(name)} over seeds")
            columns[spread] = [row.spread.get(name) if row.spread else None for row in rows]
            seeds = Column("Seeds", ".0f", help="Number of students in the mean")
            several = any(row.runs != 1 for row in rows)
            columns[seeds] = [row.runs if several and row.kind == "student" else None for row in rows]
    return columns


def _cost(rows: list[ModelRow]) -> Columns:
    """The share of the teacher's quality, and the cost."""
    kept = Column("Kept", ".1f", "high", "Share of the teacher's quality; for pairs, of the part above chance", "%")
    return {
        kept: [None if row.kept is None else 100 * row.kept for row in rows],
        Column("ms / query", ",.2f", "low", "Milliseconds for one query"): [row.ms_per_query for row in rows],
        Column("Pairs / s", ",.0f", "high", "Pairs scored in a second"): [row.pairs_per_second for row in rows],
        Column("Size, MB", ",.0f", "low", "Size of the weights in memory"): [row.size_mb for row in rows],
        Column("Bytes / doc", ",.0f", "low", "What is kept of a document, as float32"): [
            row.bytes_per_document for row in rows
        ],
        Column("Speed-up", ",.1f", "high", "Compared with the teacher; below 1: slower", "×"): [
            row.speedup for row in rows
        ],
    }


def _tests(rows: list[ModelRow], how: str) -> Table | None:
    """The paired tests of the rows that have one."""
    tested = [(row, row.significance) for row in rows if row.significance is not None]
    if not tested:
        return None
    columns = [Column("Model"), Column("Against"), Column("Difference", "+.3f"), Column("Low", "+.3f")]
    columns += [Column("High", "+.3f"), Column("p", _p), Column("p, Holm", _p)]
    cells = [
        TableRow([row.name, test.against, test.difference, test.low, test.high, test.p, test.p_holm], row.kind)
        for row, test in tested
    ]
    caption = f"Paired {how}, on means over seeds if there are several. "
    caption += "Low and high are the 95% interval; Holm's p allows for the number of tests."
    return Table(columns, cells, caption)


def _p(value: float) -> str:
    return p_value(value).removeprefix("= ")


def quality_and_latency(run: RunFiles) -> Section | None:
    """Quality against milliseconds per query; for pair tasks against pairs per second (DiPair Fig. 1). Log x."""
    metrics, cost = run.metrics, words_of(run.metrics).cost
    measure = metrics.measure
    rows = [row for row in metrics.rows if cost.of(row) and measure in row.measures]
    if measure is None or len(rows) < 2:
        return None
    points = [
        Point(cost.of(row) or 0.0, row.measures[measure], name, row.kind, f"{row.name}")
        for row, name in zip(rows, short_names([row.name for row in rows]), strict=True)
    ]
    plot = Scatter(points, cost.title, measure_title(measure), log_x=True)
    return Section(f"Quality against {cost.noun}", [PlotFigure(plot, height=430)], cost.explanation)
