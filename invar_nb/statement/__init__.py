"""The floor `statement`: the report, the figures, the demo and the shell."""
