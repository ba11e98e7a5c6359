"""Intervals and tests on plain numbers."""
