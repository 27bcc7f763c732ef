"""The parts of a plan: asked about, done side by side as child runs, and joined."""
