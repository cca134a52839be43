"""Example queries: the results of each model, side by side."""

from __future__ import annotations

from limbeck.report.blocks import Item, Section, SideBySide
from limbeck.report.formatting import cut
from limbeck.report.run_files import Example, FoundList, RunFiles

LONGEST_TEXT = 280


def examples(run: RunFiles) -> Section | None:
    """Each list compared with the first one, the teacher's."""
    shown = [side_by_side(example) for example in run.examples if example.lists]
    if not shown:
        return None
    explanation = "The best results of each model. A mark says where the first model ranks the same document."
    return Section("Examples", shown, explanation)


def side_by_side(example: Example) -> SideBySide:
    """The lists of one query, each compared with the first."""
    first = example.lists[0]
    ranks = {found.id: rank for rank, found in enumerate(first.results, start=1)}
    return SideBySide(example.query, [(found.name, _items(found, first, ranks)) for found in example.lists])


def _items(found_list: FoundList, first: FoundList, ranks: dict[str, int]) -> list[Item]:
    items = []
    for found in found_list.results:
        rank = ranks.get(found.id)
        note = ""
        if found_list is not first:
            note = f"{first.name} #{rank}" if rank else f"not in {first.name}’s list"
        text = cut(found.text, LONGEST_TEXT)
        items.append(Item(found.id, f"{found.score:.2f}", note, text, highlighted=rank is not None))
    return items
