"""The whole job from Python: distil, look at the numbers, use the student.

python examples/distill.py                     the built-in data, a few minutes
python examples/distill.py my-recipe.yaml      your own
"""

from __future__ import annotations

import sys

import limbeck as lb

if __name__ == "__main__":
    recipe = sys.argv[1] if len(sys.argv) > 1 else "pydocs-one-hot"
    result = lb.distill(recipe)
    for row in result.rows:
        print(f"{row.name:<22} {row.measures}  {row.ms_per_query or 0:.1f} ms per query")
    documents = ["Copy data from src to dst.", "Sort the list in place.", "Open a network connection."]
    for position, score in result.student.rank("how do I copy a file", documents):
        print(f"{score:8.2f}  {documents[position]}")
