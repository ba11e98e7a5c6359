"""The floor `metrics`: what predictions score, and how sure that is."""
