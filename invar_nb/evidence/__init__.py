"""The floor `evidence`: losses of paired windows, never torch."""
