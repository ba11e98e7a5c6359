"""Outputs of other tools, each recognised and read: lm-eval, inspect, llama.cpp, any table by named columns."""
