"""One page a metric; each registers itself."""
