"""The host's side of the Python kernel that runs code actions."""
