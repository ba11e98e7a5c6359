"""Runs over seeds: the table of runs, the evaluator, and running a training over seeds."""
