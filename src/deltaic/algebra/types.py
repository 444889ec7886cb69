"""What can be done with values of a type, by Spark's name of it."""

import re


def is_groupable(kind: str) -> bool:
    """Whether values of the type can be grouped, and what is shown of a group does not depend on its order."""
    return not any(word in _unnamed(kind) for word in ("map<", "variant", "void", "geometry", "geography", "collate"))


def _unnamed(kind: str) -> str:
    """A type without the names of its fields, which may be those of types."""
    return re.sub(r"`(?:[^`]|``)*`", "", kind)


def is_exact_key(kind: str) -> bool:
    """Whether equal values are the same value to every function: 0.0 and -0.0 are not. A view can store it, too."""
    return is_groupable(kind) and not any(word in _unnamed(kind) for word in ("float", "double", "interval"))


def is_storable(kind: str) -> bool:
    """Whether Delta can store a column of the type; what users see is checked by name elsewhere."""
    return not any(word in _unnamed(kind) for word in ("interval", "void"))
