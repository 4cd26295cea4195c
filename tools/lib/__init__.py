"""What the tools for users share."""
