"""Measurements: each module prints what it measured; ratios within one run, since machines differ."""
