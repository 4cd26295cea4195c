"""Settings of all tests."""

import os

from hypothesis import settings

# A red CI must mean a change for the worse, not a lucky find; new examples are
# looked for on developers' machines.
settings.register_profile('ci', derandomize=True)
if os.environ.get('CI'):
    settings.load_profile('ci')
