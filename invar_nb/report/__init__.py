"""The report: its sections, pages, evidence and checker."""
