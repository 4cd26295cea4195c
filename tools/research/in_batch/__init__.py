"""Training of two-tower models without a Runner, and studies made of it.

Nothing here is registered: tools import the modules they need.
"""
