"""Numbers, intervals, documents and journals that everything else rests on."""
