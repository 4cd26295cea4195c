"""What the command-line tools are made of."""
