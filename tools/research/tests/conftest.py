"""Fixtures that these tests share with `tests/`."""

from script_fixtures import own_environment, run, run_script  # noqa: F401
