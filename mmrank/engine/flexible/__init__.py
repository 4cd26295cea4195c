"""mmengine's ``FlexibleRunner`` and sharded training, made safe.

Nothing is imported here: the strategy needs a newer torch than the runner.
"""
