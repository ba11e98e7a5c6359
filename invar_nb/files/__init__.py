"""Reading and writing losses, answers and tables."""
