"""What the tests of analyses share."""

from collections.abc import Mapping

from limbeck.data.dataset import Qrels, RankingData
from limbeck.data.texts import Texts
from limbeck.report.analyses.base import Result
from limbeck.report.blocks import Section
from limbeck.report.html import Report
from tests.report.test_blocks import Reader


def comes_back(result: Result) -> bool:
    """Whether JSON gives the same result again."""
    return type(result).model_validate_json(result.model_dump_json()) == result


def shown(section: Section) -> str:
    """The text of a section, as a browser would show it on its page; nothing in it may be a script of others."""
    reader = Reader(Report("t", "s", [section]).render())
    assert [tag for tag, _ in reader.tags].count("script") == 1
    return " ".join(reader.text.split())


def ranking_data(queries: Mapping[str, str], corpus: Mapping[str, str], qrels: Qrels | None = None) -> RankingData:
    return RankingData("test", Texts.from_dict(corpus), Texts.from_dict(queries), {"test": qrels or {}})
