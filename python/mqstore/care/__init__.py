"""Work on a whole store: checks, repairs, questions and counts."""
