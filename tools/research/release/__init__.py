"""Small trained models, built as assets of a release."""
