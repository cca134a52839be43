"""Search results for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from limbeck.search.analyzer import Words
    from limbeck.search.results import Hit, Part, Results


def print_results(console: Console, results: Results, words: Words, explain: bool) -> None:
    """Rank, score, id, which search found it, and the part of the passage that contains the query's words."""
    if results.note:
        console.print(Text(results.note, style="yellow"))
    if not results.hits and not results.note:
        console.print("nothing found", highlight=False)
    for hit in results.hits:
        _print_hit(console, hit, results.query, words, explain)


def _print_hit(console: Console, hit: Hit, query: str, words: Words, explain: bool) -> None:
    from limbeck.search.snippets import snippet

    head = Text(f"{hit.rank:>3}  {hit.score:<8.4f} ")
    head.append(hit.id, style="bold cyan")
    head.append(f"  {_found(hit)}", style="dim")
    console.print(head, soft_wrap=True)
    covered = hit.whole[slice(*hit.span)] if hit.span is not None else hit.text
    title = [*snippet(words, query, hit.title), (": ", False)] if hit.title and hit.span is None else []
    body = Text()
    for text, marked in [*title, *snippet(words, query, covered)]:
        body.append(f"*{text}*" if marked and not console.is_terminal else text, "bold yellow" if marked else "")
    console.print(_indented(console, body))
    if explain:
        for line in _explained(hit):
            console.print(Text(f"     {line}", style="dim"), soft_wrap=True)


def _indented(console: Console, text: Text) -> Text:
    lines = text.wrap(console, max(40, console.width - 5))
    return Text("\n").join(Text("     ") + line for line in lines)


def _found(hit: Hit) -> str:
    ranks = [f"{name} #{part.rank}" for name, part in (("dense", hit.dense), ("sparse", hit.sparse)) if part]
    return ", ".join(ranks)


def _explained(hit: Hit) -> list[str]:
    terms = hit.terms or {}
    shared = ", ".join(f"{stem} {value:.3f}" for stem, value in sorted(terms.items(), key=lambda item: -item[1]))
    lines = [f"dense   {_part(hit.dense)}", f"sparse  {_part(hit.sparse)}{f' = {shared}' if shared else ''}"]
    if hit.fields:
        lines.append("fields  " + ", ".join(f"{name}={value}" for name, value in hit.fields.items()))
    return lines


def _part(part: Part | None) -> str:
    return f"{part.score:.4f}, rank {part.rank}" if part is not None else "not among its best"
