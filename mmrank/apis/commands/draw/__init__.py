"""The commands ``mmrank draw ...``."""
