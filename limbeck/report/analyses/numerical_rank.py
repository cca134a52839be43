"""How many dimensions a dual encoder needs to reproduce a teacher's scores ("In defense of dual-encoders", Sec. 3.1).

For finitely many texts, scores are a matrix S [queries, documents], and S = Z W^T where Z and W have rank(S) columns:
a dual encoder of that size can reproduce the scores exactly. The singular values give the smallest squared error of a
smaller one (Eckart and Young), for any towers and any training. For top lists, the same approximation shows how many
dimensions are enough, not how many are needed: vectors that are optimised for the order may need fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from limbeck.data.dataset import Candidates
from limbeck.errors import LimbeckError
from limbeck.progress import track
from limbeck.report.analyses.base import Result, finite_scores
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.blocks import Block, Column, PlotFigure, Section, Table, TableRow, Text
from limbeck.report.colours import Colours
from limbeck.report.plots import Lines, Series

ENERGIES = (0.9, 0.95, 0.99, 0.999)
TOLERANCES = (1e-1, 1e-2, 1e-3)
NEARLY_ALL = 0.95  # agreement in the top k that counts as enough
MOST_PLOTTED = 400
OPTIONS = "evaluation.rank_queries and evaluation.rank_documents"


class Truncation(Result):
    """The best approximation of one rank."""

    rank: int
    error: float  # Frobenius norm of the residual, relative to the matrix
    rms: float  # root mean square error of one score, in the model's units
    top_k: float  # mean share of its top k documents that are in the top k of the full scores


class Spectrum(Result):
    """Statistics of the singular values of a matrix.

    `energy` counts the leading dimensions with a given share of the sum of squares; `above` counts the singular values
    larger than a fraction of the largest; `rank` counts those above the rounding error of single precision, which
    models use. `effective` is the exponential of the entropy of the normalised singular values (Roy and Vetterli,
    2007).
    """

    singular_values: tuple[float, ...]  # descending
    energy: dict[float, int]  # share -> dimensions
    above: dict[float, int]  # fraction of the largest -> dimensions
    rank: int
    effective: float
    truncations: tuple[Truncation, ...]  # ranks ascending, the last one is full


@analysis
class NumericalRank(Analysis):
    """A score matrix, raw and with the mean of each row subtracted: no ranking depends on that mean."""

    name = "rank"
    title = "Rank of the teacher's scores"
    about = "how many dimensions the teacher's scores need; costs thousands of teacher scores"
    place = 30

    queries: int
    documents: int
    k: int
    raw: Spectrum
    centred: Spectrum

    @property
    def largest(self) -> int:
        """The maximum rank of a centred matrix of this shape."""
        return min(self.queries, self.documents - 1)

    @classmethod
    def of(cls, run: MeasuredRun) -> NumericalRank:
        return numerical_rank(score_matrix(run.teacher_matrix()))

    def section(self, colours: Colours) -> Section:
        return numerical_rank_section(self)


def score_matrix(run: Candidates) -> np.ndarray:
    """The matrix [queries, documents] of a run in which every query has a score for the same documents."""
    documents = sorted(next(iter(run.values()), {}))
    rows = []
    for query, scored in run.items():
        missing = next((document for document in documents if document not in scored), None)
        if missing is not None or len(scored) != len(documents):
            lacking = (
                f"has no score for document {missing!r}" if missing else "has scores for more documents than others"
            )
            raise LimbeckError(f"query {query!r} {lacking}; score every query against the same documents")
        finite_scores("the score matrix", query, scored)
        rows.append([scored[document] for document in documents])
    if not documents:
        raise LimbeckError("the run is empty; score some queries against the same documents first")
    return np.array(rows, dtype=np.float64)


def numerical_rank(scores: ArrayLike, k: int = 10, ranks: Sequence[int] | None = None) -> NumericalRank:
    """The spectrum of a teacher's score matrix [queries, documents], raw and row-centred.

    Approximations are tried at `ranks`, by default at 1, 2, 3, 4, 6, 8, 12 and so on. Their top k is compared with the
    top k of the full scores; if several documents tie with the k-th best, any of them counts.
    """
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim != 2:
        raise LimbeckError(
            f"a score matrix has two axes, not the shape {list(matrix.shape)}; give [queries, documents]"
        )
    queries, documents = matrix.shape
    if queries < 2 or documents < 2:
        raise LimbeckError(f"{queries} queries by {documents} documents are too few to compute a rank; score more")
    if not np.isfinite(matrix).all():
        raise LimbeckError("the score matrix has entries that are not finite numbers; score those pairs again")
    if not 1 <= k < documents:
        raise LimbeckError(f"the top {k} of {documents} documents is not informative; use k from 1 to {documents - 1}")
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    if np.abs(centred).max() <= np.finfo(np.float32).eps * np.abs(matrix).max():
        raise LimbeckError("every document has the same score for a query; use a teacher that ranks them")
    raw, of_centred = (_spectrum(each, k, ranks) for each in track([matrix, centred], "Singular values"))
    return NumericalRank(queries=queries, documents=documents, k=k, raw=raw, centred=of_centred)


def _spectrum(matrix: np.ndarray, k: int, ranks: Sequence[int] | None) -> Spectrum:
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    held = np.cumsum(values**2) / (values**2).sum()
    shares = values[values > 0] / values.sum()
    rounding = max(matrix.shape) * np.finfo(np.float32).eps
    return Spectrum(
        singular_values=tuple(values.tolist()),
        energy={share: int(np.searchsorted(held, share - 1e-12) + 1) for share in ENERGIES},
        above={fraction: int((values > fraction * values[0]).sum()) for fraction in TOLERANCES},
        rank=int((values > rounding * values[0]).sum()),
        effective=float(np.exp(-(shares * np.log(shares)).sum())),
        truncations=_truncations(matrix, left * values, right, k, _ranks(len(values), ranks)),
    )


def _ranks(full: int, wanted: Sequence[int] | None) -> list[int]:
    """The ranks to try, ascending; the full rank is always the last."""
    if wanted is not None and any(rank < 1 for rank in wanted):
        raise LimbeckError(f"rank {min(wanted)} is not defined; use ranks of 1 or more")
    tried = (
        wanted if wanted is not None else [factor << power for power in range(full.bit_length()) for factor in (1, 3)]
    )
    return sorted({rank for rank in tried if rank < full} | {full})


def _truncations(
    matrix: np.ndarray, left: np.ndarray, right: np.ndarray, k: int, ranks: Sequence[int]
) -> tuple[Truncation, ...]:
    kth_best = np.partition(matrix, -k, axis=1)[:, -k, None]  # [queries, 1]
    belongs = matrix >= kth_best
    found = []
    approximation, done = np.zeros_like(matrix), 0
    for rank in ranks:
        approximation += left[:, done:rank] @ right[done:rank]
        done = rank
        top = np.argpartition(approximation, -k, axis=1)[:, -k:]  # [queries, k]
        lost = float(np.linalg.norm(matrix - approximation))
        agreement = float(np.take_along_axis(belongs, top, axis=1).mean())
        error, rms = lost / float(np.linalg.norm(matrix)), lost / matrix.size**0.5
        found.append(Truncation(rank=rank, error=error, rms=rms, top_k=agreement))
    return tuple(found)


def dimensions_needed(spectrum: Spectrum, agreement: float = NEARLY_ALL) -> int:
    """The smallest tried rank whose top k agrees this much with the top k of the full scores."""
    return next(
        each.rank for each in spectrum.truncations if each.top_k >= agreement or each is spectrum.truncations[-1]
    )


def numerical_rank_section(result: NumericalRank) -> Section:
    """The answer in words, the spectrum, and what each size preserves."""
    blocks: list[Block] = [Text(_answer(result), lead=True), Text(_raw_and_centred(result))]
    if _is_cut_off(result):
        blocks.append(Text(_warning(result)))
    blocks += [
        PlotFigure(
            _agreement_plot(result),
            "The top lists of the approximation that is best in squared error; vectors of that size that are made for "
            "the order may do better.",
            330,
        ),
        PlotFigure(_spectrum_plot(result), "Singular values, relative to the largest; both axes are logarithmic.", 300),
        _energy_table(result),
        _truncation_table(result),
    ]
    shape = f"{result.queries:,} queries by {result.documents:,} documents"
    return Section(
        "How many dimensions do these scores need?",
        blocks,
        f"The rank of the teacher's score matrix ({shape}): a bound on what vectors of a size can represent, not a "
        "promise that training finds them or that it holds for other texts.",
    )


def _answer(result: NumericalRank) -> str:
    centred = result.centred
    needed = dimensions_needed(centred)
    held = f"{_dimensions(centred.energy[0.99])} hold 99% of what sets the scores of a query apart."
    if needed >= result.largest:
        return (
            f"Nothing short of all {_dimensions(result.largest)} that a matrix of this shape can have keeps "
            f"{NEARLY_ALL:.0%} of the teacher's top {result.k}: "
            f"it is too small to tell how many are enough; set {OPTIONS} higher. "
            f"{held}"
        )
    return f"{_dimensions(needed)} are enough to keep {NEARLY_ALL:.0%} of the teacher's top {result.k}. {held}"


def _dimensions(count: int) -> str:
    return "1 dimension" if count == 1 else f"{count:,} dimensions"


def _raw_and_centred(result: NumericalRank) -> str:
    return (
        f"Of the scores as they are, 99% of the energy is in {_dimensions(result.raw.energy[0.99])}; with the mean "
        f"of each query taken off, in {_dimensions(result.centred.energy[0.99])}. A ranking depends on the latter "
        "only: a large common shift fills the first dimension and says nothing about the order. The effective rank of "
        f"the centred scores is {result.centred.effective:,.0f}, of {result.largest:,} possible."
    )


def _is_cut_off(result: NumericalRank) -> bool:
    return result.centred.energy[0.99] > result.largest / 2


def _warning(result: NumericalRank) -> str:
    return (
        f"No matrix of this shape has more than {result.largest:,} dimensions, and the scores use most of them: read "
        f"the numbers as lower bounds. A larger matrix shows where they settle ({OPTIONS}; for a finished run: "
        f"`limbeck report RUN --add rank --set evaluation.rank_queries={2 * result.queries} "
        f"--set evaluation.rank_documents={4 * result.documents}`)."
    )


def _agreement_plot(result: NumericalRank) -> Lines:
    series = [
        Series(name, [(float(each.rank), each.top_k) for each in spectrum.truncations])
        for name, spectrum in (("centred", result.centred), ("raw", result.raw))
    ]
    return Lines(series, "dimensions", f"agreement in the top {result.k}", log_x=True, label_points=True)


def _spectrum_plot(result: NumericalRank) -> Lines:
    series = []
    for name, spectrum in (("centred", result.centred), ("raw", result.raw)):
        values = [value / spectrum.singular_values[0] for value in spectrum.singular_values]
        places = np.unique(np.geomspace(1, spectrum.rank, MOST_PLOTTED).astype(int))
        series.append(Series(name, [(float(place), values[place - 1]) for place in places]))
    return Lines(series, "number of the singular value", "relative size", log_x=True, log_y=True)


def _energy_table(result: NumericalRank) -> Table:
    columns = [Column("Scores"), *(Column(f"{share:.1%}".replace(".0%", "%"), ",.0f") for share in ENERGIES)]
    columns += [Column(f"> {fraction:g}", ",.0f", help="Singular values above that part") for fraction in TOLERANCES]
    columns += [Column("Numerical rank", ",.0f"), Column("Effective rank", ",.1f")]
    rows = []
    for name, spectrum in (("centred", result.centred), ("raw", result.raw)):
        counts = [*spectrum.energy.values(), *spectrum.above.values(), spectrum.rank]
        rows.append(TableRow([name, *counts, spectrum.effective]))
    caption = (
        "Dimensions that hold a share of the energy; singular values above a fraction of the largest; and above the "
        "rounding of single precision."
    )
    return Table(columns, rows, caption)


def _truncation_table(result: NumericalRank) -> Table:
    columns = [Column("Dimensions")]
    for name in ("Centred", "Raw"):
        columns += [Column(f"{name}: error", ".1f", suffix="%"), Column("per score", ",.3f")]
        columns.append(Column(f"top {result.k}", ".1f", help="Agreement with the full scores' top", suffix="%"))
    raw = {each.rank: each for each in result.raw.truncations}
    rows = []
    for each in result.centred.truncations:
        pair = (each, raw[each.rank])
        numbers = [number for cut in pair for number in (100 * cut.error, cut.rms, 100 * cut.top_k)]
        rows.append(TableRow([f"{each.rank}", *numbers]))
    return Table(
        columns, rows, "The best approximation with that many dimensions: what it loses, and what its top keeps."
    )
