"""The report, its pages, the demo and the command line."""
