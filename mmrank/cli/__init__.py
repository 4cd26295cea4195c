"""The command ``mmrank``: a table of commands, and a file for each."""
