"""The floor `machine`: models, files, tokens: everything that touches torch or the disk."""
