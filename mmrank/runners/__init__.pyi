# The public names: what type checkers and editors read, and what is imported when first used.
from .models import trained_model as trained_model

__all__: list[str]
