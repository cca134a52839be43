"""Benchmarks: each module prints its measurements, as ratios within one run, because machines differ."""
