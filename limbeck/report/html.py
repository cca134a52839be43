"""The page: one HTML file that needs neither a network nor other files."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from limbeck.files import write_atomically
from limbeck.report.blocks import Section


@dataclass(frozen=True)
class Report:
    """A report, and how to write it to a file."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    footer: str = ""

    def render(self) -> str:
        """The whole page. Its content security policy only allows our own script, by its hash."""
        style, script = _resource("page.css"), _resource("page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        anchors = _anchors([section.title for section in self.sections])
        links = "".join(
            f'<a href="#{anchor}">{escape(section.title)}</a>'
            for anchor, section in zip(anchors, self.sections, strict=True)
        )
        body = "\n".join(_section(anchor, section) for anchor, section in zip(anchors, self.sections, strict=True))
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<div><h1>{escape(self.title)}</h1><p class="subtitle">{escape(self.subtitle)}</p></div>
<button type="button" id="theme" aria-label="Switch between light and dark" title="Light or dark">◐</button>
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{body}
</main>
<footer>{escape(self.footer)}</footer>
<script>{script}</script>
</body>
</html>
"""

    def write(self, path: str | Path) -> Path:
        """Write the page, complete or not at all."""
        path = Path(path)
        with write_atomically(path, "w") as handle:
            handle.write(self.render())
        return path


def _section(anchor: str, section: Section) -> str:
    explanation = f'<p class="explanation">{escape(section.explanation)}</p>' if section.explanation else ""
    blocks = "\n".join(block.html() for block in section.blocks)
    return f'<section id="{anchor}">\n<h2>{escape(section.title)}</h2>\n{explanation}\n{blocks}\n</section>'


def _anchors(titles: Sequence[str]) -> list[str]:
    """A fragment name for each title, made from its words; repeated names are numbered."""
    anchors: list[str] = []
    for title in titles:
        base = anchor = "-".join(re.findall(r"[a-z0-9]+", title.lower())) or "section"
        number = 2
        while anchor in anchors:
            anchor, number = f"{base}-{number}", number + 1
        anchors.append(anchor)
    return anchors


def _resource(name: str) -> str:
    return (files("limbeck.report") / name).read_text(encoding="utf-8")
