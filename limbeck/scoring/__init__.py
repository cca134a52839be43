"""Pair lists: the fast scorer, and jobs that run it over lists of any length."""
