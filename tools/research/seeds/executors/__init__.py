"""Where the commands of a comparison over seeds run."""
