"""Learning: what happens to a run after the user has the answer."""
