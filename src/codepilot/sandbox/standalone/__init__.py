"""Files that run inside a sandbox or as processes of their own. Each needs nothing but the standard library."""
