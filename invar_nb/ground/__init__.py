"""The floor `ground`: what makes a number admissible, and what an interval promises. Knows numpy."""
