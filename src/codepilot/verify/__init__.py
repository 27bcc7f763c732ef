"""Not furnished yet."""
