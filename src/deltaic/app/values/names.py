"""Which names views, tables and schemas may have: in a local warehouse each is a folder."""

from __future__ import annotations

from deltaic.algebra.nodes import RESERVED
from deltaic.errors import NameProblem

ENDINGS = (".link", ".live")
"""Of files beside the folders of tables: where a table elsewhere is, and where a live source is."""
_LONGEST = 200
"""Bytes. File systems take 255, and endings and prefixes come to a name."""


def check_name(name: str, what: str) -> None:
    """Refuses a name that would be another folder than one of its own, or that is Deltaic's."""
    if name.lower().startswith(RESERVED):
        raise NameProblem(f"names that begin with {RESERVED} are Deltaic's own")
    if len(name.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise NameProblem(f"{name[:20]!r}... cannot be the name of {what}: it has more than {_LONGEST} bytes")
    climbs = any(c in "/\\" or not c.isprintable() for c in name)
    if not name.strip() or climbs or name.startswith(".") or name.lower().endswith(ENDINGS):
        raise NameProblem(
            f"{name!r} cannot be the name of {what}",
            hint="It may not begin with a dot, hold a slash, a backslash or a character that is not printed, "
            f"or end in {' or '.join(ENDINGS)}.",
        )
