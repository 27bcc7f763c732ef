"""The parts of the Python API, one class each; `CodePilot` joins them."""
