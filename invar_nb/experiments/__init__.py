"""Runs over seeds: the evaluator, the guard, the runner, the queue."""
