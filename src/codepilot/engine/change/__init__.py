"""A run's change: proposed, proved, shown, reviewed, written into a checkout, landed on a branch."""
