"""The commands ``mmrank check ...``."""
