"""What each kind of task does in its steps that no other kind does."""
