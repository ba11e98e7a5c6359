"""Text, checkpoints and scoring: what touches torch."""
