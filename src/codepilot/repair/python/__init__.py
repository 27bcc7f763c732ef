"""Everything in repair that knows Python: parsing, templates, synthesis, and the worker inside the sandbox."""
