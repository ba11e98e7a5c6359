"""The floor `statistics`: numbers, never models."""
