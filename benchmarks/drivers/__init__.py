"""The measured processes. They are started with different interpreters and import nothing of the rest."""
