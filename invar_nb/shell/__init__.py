"""The command line, the demo, and what they read and write."""
