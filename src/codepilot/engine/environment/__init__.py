"""The project of a run and what it needs: found, inspected, installed."""
