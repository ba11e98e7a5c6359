"""Arms, pairs, metrics, comparisons and verdicts: one path for losses, answers and runs."""
