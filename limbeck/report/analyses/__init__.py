"""The analyses of "In defense of dual-encoders for neural ranking", for your own models.

Each is one file: a function of plain runs, judgements and texts; a result that can be saved as JSON; and a function
that turns the result into a section of a report. Importing this package registers all of them for recipes
(`registry.py`). They can also be called without a recipe:

    result = score_distributions({"teacher": teacher_run, "student": student_run}, data.judgements("test"))
    Report("My models", "", [score_distributions_section(result)]).write("analyses.html")
"""

from limbeck.report.analyses.attention_maps import AttentionMaps, attention_maps, attention_maps_section
from limbeck.report.analyses.disagreements import Disagreement, Disagreements, disagreements, disagreements_section
from limbeck.report.analyses.distances import Distances, distances, distances_section
from limbeck.report.analyses.generalisation import (
    Generalisation,
    TrainTest,
    generalisation,
    generalisation_section,
)
from limbeck.report.analyses.normalised_margins import (
    NormalisedMargins,
    normalised_margins,
    normalised_margins_section,
)
from limbeck.report.analyses.numerical_rank import (
    NumericalRank,
    dimensions_needed,
    numerical_rank,
    numerical_rank_section,
    score_matrix,
)
from limbeck.report.analyses.pair_map import PairMap, pair_map, pair_map_section
from limbeck.report.analyses.query_cost import EncoderCost, QueryCosts, query_costs, query_costs_section
from limbeck.report.analyses.score_distributions import (
    ScoreDistributions,
    score_distributions,
    score_distributions_section,
)
from limbeck.report.analyses.sensitivity import Sensitivity, SettingPoint, sensitivity, sensitivity_section
from limbeck.report.analyses.top_lists import TopLists, average_overlap, top_lists, top_lists_section
from limbeck.report.analyses.wins_and_losses import WinsAndLosses, wins_and_losses, wins_and_losses_section

__all__ = [
    "AttentionMaps",
    "Disagreement",
    "Disagreements",
    "Distances",
    "EncoderCost",
    "Generalisation",
    "NormalisedMargins",
    "NumericalRank",
    "PairMap",
    "QueryCosts",
    "ScoreDistributions",
    "Sensitivity",
    "SettingPoint",
    "TopLists",
    "TrainTest",
    "WinsAndLosses",
    "attention_maps",
    "attention_maps_section",
    "average_overlap",
    "dimensions_needed",
    "disagreements",
    "disagreements_section",
    "distances",
    "distances_section",
    "generalisation",
    "generalisation_section",
    "normalised_margins",
    "normalised_margins_section",
    "numerical_rank",
    "numerical_rank_section",
    "pair_map",
    "pair_map_section",
    "query_costs",
    "query_costs_section",
    "score_distributions",
    "score_distributions_section",
    "score_matrix",
    "sensitivity",
    "sensitivity_section",
    "top_lists",
    "top_lists_section",
    "wins_and_losses",
    "wins_and_losses_section",
]
