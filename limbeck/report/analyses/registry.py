"""The analyses that a recipe can name. Each is one class in one file, and `@analysis` registers it:

    @analysis
    class Overlap(Analysis):
        name, title, about = "overlap", "Overlap", "how many of the teacher's first ten the student finds"
        share: float

        @classmethod
        def of(cls, run: MeasuredRun) -> Overlap: ...

        def section(self, colours: Colours) -> Section: ...

The fields are the result, which a run saves as JSON. Recipes, `limbeck report --add`, their help and the report take
all names from here, including those of plugins. Imports are light, because `limbeck report --help` lists the analyses.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.plugins import load_plugins
from limbeck.report.analyses.base import Result
from limbeck.report.analyses.measured_run import MeasuredPairs, MeasuredRun
from limbeck.report.blocks import Section
from limbeck.report.colours import Colours


class Analysis(Result):
    """A result that is computed from a run and shown in its report."""

    name: ClassVar[str]  # name in recipes, and of the file in a run's directory
    title: ClassVar[str]  # section title, if the report has to say why there is no result
    about: ClassVar[str]  # one line for the help: what it shows
    place: ClassVar[int] = 1000  # position in the report, ascending
    by_default: ClassVar[bool] = False  # used if a recipe names no analyses; not for plugins
    reads_pairs: ClassVar[bool] = False  # whether it has `of_pairs`; all have `of`, for rankings
    made_by: ClassVar[str] = ""  # how it is made, if recipes cannot ask for it
    dropped: ClassVar[str] = ""  # a key of older results, which can no longer be shown

    @classmethod
    def of(cls, run: MeasuredRun) -> Analysis:
        """Compute it. If the run lacks something, raise a `LimbeckError`, which the report shows instead."""
        raise NotImplementedError

    @classmethod
    def of_pairs(cls, run: MeasuredPairs) -> Analysis:
        """Compute it for a run on pairs."""
        raise LimbeckError(f"{cls.name} requires rankings, and this is a run on pairs; its report has the tables")

    def section(self, colours: Colours) -> Section:
        """The section of the report; `colours[model]` is the number of a model's colour in all plots."""
        raise NotImplementedError


ANALYSES: dict[str, type[Analysis]] = {}
AnalysisType = TypeVar("AnalysisType", bound=type[Analysis])


def analysis(kind: AnalysisType) -> AnalysisType:
    """Register an analysis under its `name`."""
    ANALYSES[kind.name] = kind
    return kind


def analyses() -> dict[str, type[Analysis]]:
    """All analyses by name, in the order of the report."""
    import_module("limbeck.report.analyses")
    load_plugins()
    return dict(sorted(ANALYSES.items(), key=lambda item: item[1].place))


def requested() -> dict[str, type[Analysis]]:
    """The analyses that a recipe or `limbeck report --add` can ask for."""
    return {name: kind for name, kind in analyses().items() if not kind.made_by}


def default_names() -> list[str]:
    """The analyses of a recipe that does not name any."""
    return [name for name, kind in requested().items() if kind.by_default]


def check_name(name: str) -> str:
    """Refuse a name that a recipe cannot ask for."""
    known = analyses()
    if name not in known:
        raise ValueError(f"there is no analysis {name!r}; {did_you_mean(name, list(requested()))}")
    if known[name].made_by:
        raise ValueError(f"{name} cannot be asked for: {known[name].made_by}")
    return name


class _Names:
    """The JSON schema of a name: any registered one."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "enum": list(requested())}


AnalysisName = Annotated[str, AfterValidator(check_name), _Names]
