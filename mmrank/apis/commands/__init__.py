"""The commands of ``mmrank``; each module has a ``main``."""
