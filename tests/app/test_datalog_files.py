"""Datalog programs in files."""

from pathlib import Path

import pytest

from deltaic.app.statements.programs import program_in
from deltaic.errors import MissingError, ParseError


def test_what_is_read_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "p.dl"
    file.write_text("p('ü').", encoding="utf-8-sig")
    assert program_in(file) == program_in(str(file)) == program_in("p('ü').")
    file.write_bytes(b'p("\xff").')
    with pytest.raises(ParseError, match=r"p\.dl is not a text in UTF-8: .* 3 bytes in"):
        program_in(file)
    with pytest.raises(MissingError, match="cannot be read"):
        program_in(tmp_path)
