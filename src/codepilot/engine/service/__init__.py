"""What a service does for its users: tasks and bases that come over the network, and signed links."""
