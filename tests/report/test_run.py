import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from limbeck.errors import LimbeckError
from limbeck.report.analyses import normalised_margins
from limbeck.report.analyses.stored import store
from limbeck.report.learning import thinned
from limbeck.report.plot_axes import legend
from limbeck.report.results import best_student, headline
from limbeck.report.run import run_report, sections
from limbeck.report.run_files import Metrics, RunFiles, read_run
from tests.report.test_blocks import Reader


def row(name: str, kind: str, quality: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "measures": {"ndcg@10": quality, "mrr@10": quality - 0.02}, **more}


TEST = {"against": "BM25", "p": 0.0004, "difference": 0.2, "low": 0.15, "high": 0.25}
ROWS = [
    row("teacher (cross-encoder, 6 layers)", "teacher", 0.8, kept=1.0, ms_per_query=420.0, speedup=1.0, size_mb=91.0),
    row("BM25", "baseline", 0.5, kept=0.625, ms_per_query=0.4),
    row("softmax_ce", "student", 0.76, kept=0.95, ms_per_query=2.0, speedup=210.0, size_mb=63.0, significance=TEST),
    row("logit_mse", "student", 0.6, kept=0.75, ms_per_query=1.0, speedup=420.0, size_mb=63.0),
]
METRICS = {
    "title": "A run",
    "data": {"name": "pydocs", "queries_train": 2038, "queries_dev": 332, "queries_test": 503, "documents": 3156},
    "task": "rerank",
    "rows": ROWS,
    "seconds": 252.0,
    "versions": {"torch": "2.13.0"},
    "note": "The small version.",
}
LOG = [
    {"model": "teacher", "stage": 0, "step": 10, "loss": 1.5, "objectives": {"bce": 1.5}, "lr": 1e-4},
    {"model": "teacher", "stage": 0, "step": 20, "loss": 1.1, "dev": {"ndcg@10": 0.7}},
    {"model": "softmax_ce", "stage": 0, "step": 20, "dev": {"ndcg@10": 0.6}},
]
EXAMPLES = [
    {
        "query": "how do I copy a file",
        "lists": [
            {
                "name": "teacher",
                "results": [{"id": "shutil.copyfile", "score": 3.2, "text": "<script>alert(1)</script>"}],
            },
            {
                "name": "student",
                "results": [
                    {"id": "os.rename", "score": 2.0, "text": "Rename."},
                    {"id": "shutil.copyfile", "score": 1.5, "text": "Copy."},
                ],
            },
        ],
    }
]


def write_run(folder: Path, log: Any = LOG) -> Path:
    (folder / "metrics.json").write_text(json.dumps(METRICS))
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    (folder / "examples.json").write_text(json.dumps(EXAMPLES))
    (folder / "recipe.yaml").write_text("seed: 7\n")
    return folder


def titles(page: str) -> list[str]:
    return [part.split("</h2>")[0] for part in page.split("<h2>")[1:]]


def test_the_report_of_a_full_run_has_every_part(tmp_path: Path) -> None:
    path = run_report(write_run(tmp_path))
    assert path == tmp_path / "report.html"
    page = path.read_text(encoding="utf-8")
    assert titles(page) == [
        "Result",
        "Comparison",
        "Quality against latency",
        "Learning curves",
        "Examples",
        "Recipe",
        "Versions",
    ]
    text = Reader(page).text
    for expected in (
        "softmax_ce keeps 95% of the teacher's nDCG@10 at 210 times its speed.",
        "pydocs · re-ranking · 2,038 train / 332 dev / 503 test queries · 3,156 documents",
        "It is 0.200 above BM25 in nDCG@10 (95% interval +0.150 to +0.250, p\u00a0<\u00a00.001).",
        "The small version.",
        "nDCG@10 on dev",
        "seed: 7",
        "4 min 12 s",
        "2.13.0",
    ):
        assert expected in text


def test_an_older_sweep_without_its_command_shows_what_it_ran(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    plan = {"over": [{"key": "student.dim", "values": ["8", "16"]}], "tune": [], "seeds": 3, "against": "dim=8"}
    (run_dir / "sweep.json").write_text(json.dumps(plan))
    page = run_report(run_dir).read_text()
    assert "over: student.dim" in page and "8, 16" in page and "run it to repeat" not in page
    (run_dir / "sweep.json").write_text(json.dumps({"seeds": 3}))
    with pytest.raises(LimbeckError, match="sweep.json: does not describe a sweep"):
        run_report(run_dir)


def test_absent_parts_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps({"rows": [row("teacher", "teacher", 0.8)]}))
    page = run_report(tmp_path).read_text(encoding="utf-8")
    assert titles(page) == ["Result", "Comparison"]
    assert "ms / query" not in page
    assert "teacher reaches nDCG@10 0.800." in Reader(page).text


def test_a_document_with_a_script_in_it_is_shown_as_text(tmp_path: Path) -> None:
    page = run_report(write_run(tmp_path)).read_text(encoding="utf-8")
    seen = Reader(page)
    assert [tag for tag, _ in seen.tags].count("script") == 1
    assert "<script>alert(1)</script>" in seen.text


def test_examples_say_where_the_first_model_ranks_what_the_second_found(tmp_path: Path) -> None:
    text = Reader(run_report(write_run(tmp_path)).read_text(encoding="utf-8")).text
    assert "os.renamenot in teacher’s list2.00" in text
    assert "shutil.copyfileteacher #11.50" in text


def test_a_new_analysis_is_one_function_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from limbeck.report.blocks import Section, Text

    def rows_counted(run: RunFiles) -> Section:
        return Section("Count", [Text(f"{len(run.metrics.rows)} models")])

    monkeypatch.setattr("limbeck.report.run.sections", [*sections, rows_counted])
    page = run_report(write_run(tmp_path)).read_text(encoding="utf-8")
    assert "Count" in titles(page)
    assert "4 models" in page


def test_the_headline_takes_the_fastest_of_the_equally_good_students() -> None:
    rows = [*ROWS, row("m3se", "student", 0.757, kept=0.946, speedup=400.0)]
    metrics = Metrics.model_validate({"rows": rows})
    best = best_student(metrics.rows, "ndcg@10")
    assert best is not None
    assert best.name == "m3se"
    assert headline(metrics) == "m3se keeps 95% of the teacher's nDCG@10 at 400 times its speed."


def test_a_student_above_its_teacher_does_not_merely_keep() -> None:
    metrics = Metrics.model_validate({"rows": [row("colbert (distilled)", "student", 0.82, kept=1.03, speedup=8.25)]})
    assert headline(metrics) == "colbert reaches 103% of the teacher's nDCG@10 at 8.2 times its speed."


KEEPS = "student keeps 90% of the teacher's AUC above chance"


def pair_row(name: str, kind: str, measure: str, value: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "measures": {measure: value}, **more}


@pytest.mark.parametrize(
    ("measure", "student", "line"),
    [
        ("auc", {"kept": 0.0, "speedup": 246.0}, "student does no better than chance: AUC 0.499."),
        ("auc", {"kept": 0.9, "speedup": 3.0}, f"{KEEPS} at 3.0 times its speed."),
        ("auc", {"kept": 0.9, "speedup": 0.5}, f"{KEEPS} but is slower than its teacher."),
        ("pearson", {"speedup": 3.0}, "student reaches Pearson 0.499 (teacher 0.687) at 3.0 times its speed."),
    ],
)
def test_the_headline_of_pairs_praises_no_coin_flip(measure: str, student: dict[str, Any], line: str) -> None:
    rows = [pair_row("teacher", "teacher", measure, 0.687), pair_row("student", "student", measure, 0.499, **student)]
    assert headline(Metrics.model_validate({"task": "pairs", "rows": rows})) == line


def test_a_negative_correlation_has_a_headline_too() -> None:
    rows = [pair_row("student", "student", "pearson", -0.2)]
    assert headline(Metrics.model_validate({"task": "pairs", "rows": rows})) == "student reaches Pearson -0.200."


def test_warnings_are_below_the_headline(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(metrics | {"warnings": ["student ends below BM25"]}))
    assert "Warning: student ends below BM25" in Reader(run_report(folder).read_text(encoding="utf-8")).text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"rows": [', "metrics.json:1: is not valid JSON"),
        ('{"rows": [{"name": "a", "kind": "pupil"}]}', "metrics.json: rows.0.kind: input should be 'teacher'"),
        ('{"rows": [{"name": "a", "kind": "student", "kept": NaN}]}', "rows.0.kept: input should be a finite number"),
        ("[1, 2]", "metrics.json: is damaged; remove it"),
    ],
)
def test_a_damaged_metrics_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(LimbeckError) as error:
        run_report(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "report.html").exists()


def test_a_directory_without_a_run_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match=r"metrics.json: no such file; .*limbeck distill"):
        run_report(tmp_path)
    with pytest.raises(LimbeckError, match="no such directory"):
        run_report(tmp_path / "absent")


def test_a_damaged_log_line_is_named_by_its_number(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"model": "a", "step": 1}\n{"model": "a", "step": "x"}\n')
    with pytest.raises(LimbeckError, match=r"log.jsonl:2: step: "):
        run_report(tmp_path)


def test_a_last_log_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path)
    with open(tmp_path / "log.jsonl", "a") as handle:
        handle.write('{"model": "teacher", "st')
    assert len(read_run(tmp_path).log) == len(LOG)


def test_steps_logged_again_after_a_resume_replace_the_earlier_ones(tmp_path: Path) -> None:
    log = [
        {"model": "a", "step": 10, "loss": 2.0},
        {"model": "a", "step": 20, "loss": 1.5},
        {"model": "a", "step": 20, "dev": {"ndcg@10": 0.4}},
        {"model": "a", "step": 20, "loss": 1.25},
        {"model": "a", "step": 20, "dev": {"ndcg@10": 0.5}},
    ]
    lines = read_run(write_run(tmp_path, log=log)).log
    assert [(line.step, line.loss, line.dev) for line in lines] == [(10, 2.0, {}), (20, 1.25, {"ndcg@10": 0.5})]


def test_a_stage_that_counts_from_the_start_again_is_drawn_behind_the_one_before(tmp_path: Path) -> None:
    log = [{"model": "a", "stage": stage, "step": step, "loss": 1.0 + step} for stage in (0, 1) for step in (100, 200)]
    page = run_report(write_run(tmp_path, log=log)).read_text(encoding="utf-8")
    for step in (100, 200, 300, 400):
        assert f"<title>loss\nstep {step}\n" in page


def test_losses_that_diverged_are_counted_not_drawn(tmp_path: Path) -> None:
    log = [{"model": "a", "step": 1, "loss": 1.0}, {"model": "a", "step": 2, "loss": math.nan}]
    text = Reader(run_report(write_run(tmp_path, log=log)).read_text(encoding="utf-8")).text
    assert "1 logged losses were not finite" in text


def test_long_curves_are_thinned_to_means_of_neighbours() -> None:
    points = [(float(x), 2.0 * x) for x in range(600)]
    short = thinned(points)
    assert len(short) == 150
    assert short[0] == (1.5, 3.0)
    assert thinned(points[:150]) == points[:150]


def swept_log(evaluations: int) -> list[dict[str, Any]]:
    """Two objectives, each tried with two rates under one seed; the chosen rate under two seeds. And their teacher."""
    log = [{"model": "teacher", "step": 1000 * step, "loss": 0.5, "dev": {"ndcg@10": 0.8}} for step in (1, 2)]
    for name in ("softmax_ce", "logit_mse"):
        for label, loss in (
            (f"{name}, lr=1, seed 0", 9.0),
            (f"{name}, lr=2, seed 0", 1.0),
            (f"{name}, lr=2, seed 1", 3.0),
        ):
            log += [{"model": label, "step": step, "loss": loss} for step in (1, 2)]
            dev = {"ndcg@10": loss / 10, "train ndcg@10": loss / 5}
            log += [{"model": label, "step": step + 1, "dev": dev} for step in range(evaluations)]
    return log


def swept_report(folder: Path, evaluations: int) -> str:
    write_run(folder, log=swept_log(evaluations))
    rows = [{**each, "chosen": "lr=2" if each["kind"] == "student" else None} for each in ROWS]
    rows[0] = {**rows[0], "name": "teacher"}
    (folder / "metrics.json").write_text(json.dumps({**METRICS, "rows": rows}))
    page = run_report(folder).read_text(encoding="utf-8")
    return page.split("<h2>Learning curves</h2>")[1].split("</section>")[0]


def test_curves_of_a_sweep_are_means_over_seeds_of_the_chosen_settings(tmp_path: Path) -> None:
    section = swept_report(tmp_path, evaluations=2)
    students, teacher = re.findall(r'<div class="wide">(.*?)</div>', section, re.DOTALL)
    assert re.findall(r'class="legend"[^>]*>([^<]*)<', students) == ["softmax_ce", "logit_mse"]
    assert "nDCG@10 on dev, dashed: on train" in students
    assert "<title>softmax_ce\nstep 1\nnDCG@10 on dev, dashed: on train 0.2</title>" in students
    assert "<title>softmax_ce, on train\nstep 1\nnDCG@10 on dev, dashed: on train 0.4</title>" in students
    assert "step 1,000" in teacher and "step 1,000" not in students and "train" not in teacher
    assert re.findall(r"<h4>([^<]*)</h4>", section) == ["teacher", "softmax_ce", "logit_mse"]
    assert "<title>loss\nstep 1\nloss 2</title>" in section and "loss 9<" not in section
    assert "2 settings that were tried and not chosen on dev are left out." in section
    assert 'class="band series-1' in section


def test_students_that_the_log_calls_otherwise_are_found(tmp_path: Path) -> None:
    log = [{"model": f"m3se, lr=2, tau=1, seed {seed}", "step": 1, "loss": 1.0 + seed} for seed in (0, 1)]
    write_run(tmp_path, log=log)
    rows = [{**row("m3se", "student", 0.5), "chosen": "lr=2", "logged": "m3se, lr=2, tau=1"}]
    (tmp_path / "metrics.json").write_text(json.dumps({**METRICS, "rows": rows}))
    page = run_report(tmp_path).read_text(encoding="utf-8")
    assert "<h4>m3se</h4>" in page and "<title>loss\nstep 1\nloss 1.5</title>" in page and "left out" not in page


def test_curves_are_found_by_the_name_under_which_a_row_was_logged(tmp_path: Path) -> None:
    write_run(tmp_path, log=[{"model": f"a, lr={lr}, seed 0", "step": 1, "loss": lr} for lr in (1, 2)])
    rows = [{**row("short", "student", 0.5), "chosen": "tau=1", "logged": "a, lr=2"}]
    (tmp_path / "metrics.json").write_text(json.dumps({**METRICS, "rows": rows}))
    page = run_report(tmp_path).read_text(encoding="utf-8")
    assert re.findall(r"<h4>([^<]*)</h4><svg", page) == ["short"]
    assert "1 setting that was tried and not chosen on dev is left out." in page


def test_a_dev_measure_that_was_taken_once_is_a_table(tmp_path: Path) -> None:
    section = swept_report(tmp_path, evaluations=1)
    assert "nDCG@10 on dev" in section and "softmax_ce" in section


def test_swatches_of_a_legend_keep_clear_of_the_name_before() -> None:
    """By the width in DejaVu Sans, in which many systems set the page."""
    drawn, _ = legend(["gamma0=10, lr=3e-4", "mse"], ["a", "b"], 900)
    swatches = [float(x) for x in re.findall(r'<line x1="([\d.]+)"', drawn)]
    names = [float(x) for x in re.findall(r'<text x="([\d.]+)"', drawn)]
    assert swatches[1] > names[0] + 142.6 + 8  # pixels at 13 px, as a browser measures them


def test_a_table_too_wide_for_the_page_is_two(tmp_path: Path) -> None:
    measures = dict.fromkeys(("ndcg@10", "mrr@10", "search ndcg@10", "search mrr@10", "train ndcg@10"), 0.5)
    costs = {"kept": 0.9, "ms_per_query": 2.0, "pairs_per_second": 400.0, "size_mb": 63.0, "speedup": 210.0}
    rows = [{**row(name, "student", 0.5), "measures": measures, "chosen": "lr=1e-3", **costs} for name in ("a", "b")]
    write_run(tmp_path)
    (tmp_path / "metrics.json").write_text(json.dumps({**METRICS, "rows": rows}))
    page = run_report(tmp_path).read_text(encoding="utf-8").split("<h2>Comparison</h2>")[1].split("</section>")[0]
    headings = [re.findall(r'data-column="\d+">([^<]*)<', table) for table in page.split("</table>")[:-1]]
    assert headings[0][0] == headings[1][0] == "Model"
    assert headings[0][-1] == "train nDCG@10" and headings[1][1:3] == ["Chosen", "Kept"]
    assert len(headings) == 2 and max(map(len, headings)) <= 11


def test_a_model_has_one_colour_in_all_sections(tmp_path: Path) -> None:
    """Both objectives learn, and both have margins, in another order."""
    write_run(tmp_path, log=[{"model": name, "step": 1, "loss": 1.0} for name in ("logit_mse", "softmax_ce")])
    runs = {name: {"q": {"d": 9.0, "e": 1.0}} for name in ("logit_mse", "BM25", "softmax_ce")}
    store(tmp_path, "margins", lambda: normalised_margins(runs, {"q": {"d": 1}}))
    page = run_report(tmp_path).read_text(encoding="utf-8")
    panels = dict(re.findall(r'<h4>(\w+)</h4><svg.*?class="point (series-\d)', page, re.DOTALL))
    margins = page.split("<h2>Margins</h2>")[1]
    swatches = re.findall(r'class="line (series-\d)[^>]*/>\s*<text [^>]*class="legend"[^>]*>([^<]*)<', margins)
    assert set(panels) == {"softmax_ce", "logit_mse"} and len(set(panels.values())) == 2
    assert panels.items() <= {(name, css) for css, name in swatches}
