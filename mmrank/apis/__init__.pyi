# The public names: what type checkers and editors read, and what is imported when first used.
from .models import load_model as load_model
from .models import released_models as released_models

__all__: list[str]
