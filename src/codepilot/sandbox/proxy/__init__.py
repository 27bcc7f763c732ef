"""The only way out of a sandbox: an HTTP proxy on the host with a list of allowed hosts."""
