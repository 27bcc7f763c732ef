"""How limits are enforced: process trees, control groups, the watchdog, and cleaning up after a kill."""
