"""The MATERIALIZED VIEW statements, told apart from everything that is Spark's."""

from __future__ import annotations

from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from deltaic.errors import ConfigurationError, ParseError
from deltaic.sql.parse import Text
from deltaic.sql.reading import check_reading
from deltaic.sql.statements import (
    AlterView,
    ChangePlainView,
    ChangeSchema,
    CreateTable,
    CreateView,
    DescribeHistory,
    DropTable,
    DropView,
    ExplainAlter,
    ExplainCreate,
    ExplainRefresh,
    MoveTable,
    Policy,
    RefreshView,
    RenameTable,
    ShowViews,
    SparkStatement,
    Statement,
)


def parse_statement(sql: str) -> Statement:
    """What one statement asks for. Spark's own statements are passed on as they are."""
    text = Text.of(sql)
    tokens = text.tokens
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens = tokens[:-1]
    if not tokens:
        raise ParseError("there is no statement in the text")
    if any(t.token_type is TokenType.SEMICOLON for t in tokens):
        semicolon = next(t for t in tokens if t.token_type is TokenType.SEMICOLON)
        raise ParseError(
            "one statement at a time",
            at=text.position(semicolon.start),
            hint="Use split_statements, or `deltaic sql --file`, for a script.",
        )
    return _Parser(text, tokens, sql).statement()


def split_statements(script: str) -> list[str]:
    """The statements of a script, in order."""
    text = Text.of(script)
    found, start = [], 0
    for token in text.tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append(script[start : token.start])
            start = token.end + 1
    return [part for part in (*found, script[start:]) if Text.of(part).tokens]


_END = "the end of the statement"


class _Parser:
    def __init__(self, text: Text, tokens: tuple[Token, ...], raw: str) -> None:
        self.text, self.tokens, self.raw, self.index = text, tokens, raw, 0

    # reading words

    def peek(self, offset: int = 0) -> str:
        place = self.index + offset
        if place >= len(self.tokens):
            return ""
        token = self.tokens[place]
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return "" if quoted else token.text.upper()

    def words(self) -> list[str]:
        """The words from here on; a token of sqlglot may hold several, as ORDER BY does."""
        found: list[str] = []
        for offset in range(min(len(self.tokens) - self.index, 6)):
            found.extend(self.peek(offset).split() or [""])
        return found

    def take(self, *words: str) -> bool:
        """Steps over these words if they stand here."""
        if self.words()[: len(words)] != list(words):
            return False
        left = len(words)
        while left > 0:
            left -= len(self.peek().split())
            self.index += 1
        return True

    def need(self, *words: str) -> None:
        if not self.take(*words):
            self.fail(f"{' '.join(words)} is expected")

    def fail(self, what: str) -> NoReturn:
        ended = self.index >= len(self.tokens)
        offset = len(self.text.sql) if ended else self.tokens[self.index].start
        found = _END if ended else repr(self.tokens[self.index].text)
        raise ParseError(f"{what}, not {found}", at=self.text.position(offset))

    def done(self) -> None:
        if self.index < len(self.tokens):
            self.fail(f"{_END} is expected")

    def name(self) -> tuple[str, ...]:
        if self.peek() == "IDENTIFIER" and self.peek(1) == "(":
            named = self.name_in_text()
            if named is not None:
                return named
        parts = [self.identifier()]
        while self.peek() == ".":
            self.index += 1
            parts.append(self.identifier())
        return tuple(parts)

    def name_in_text(self) -> tuple[str, ...] | None:
        """The name in IDENTIFIER('a.b'); None if these are a name and a list of columns after it."""
        inside = self.tokens[self.index + 2 : self.text.closing(self.index + 1)]
        if len(inside) > 1 and _is_word(inside[0]) and (_is_word(inside[1]) or inside[1].text == ","):
            return None
        self.index += 2
        if len(inside) != 1 or inside[0].token_type is not TokenType.STRING:
            self.fail("IDENTIFIER takes one text in quotes here")
        name = Text.of(self.string())
        within = _Parser(name, name.tokens, name.sql)
        parts = within.name()
        within.done()
        self.need(")")
        return parts

    def identifier(self) -> str:
        if self.index >= len(self.tokens):
            self.fail("a name is expected")
        token = self.tokens[self.index]
        if not _is_word(token):
            self.fail("a name is expected")
        self.index += 1
        return token.text

    def string(self) -> str:
        if self.index >= len(self.tokens) or self.tokens[self.index].token_type is not TokenType.STRING:
            self.fail("a text in quotes is expected")
        text = ""
        while self.index < len(self.tokens) and self.tokens[self.index].token_type is TokenType.STRING:
            token, before = self.tokens[self.index], self.tokens[self.index - 1]
            # Spark reads 'it''s' as one text; sqlglot makes two tokens of it that touch
            doubled = before.token_type is TokenType.STRING and before.end + 1 == token.start
            text += ("'" if doubled else "") + token.text
            self.index += 1
        return text

    def rest(self) -> str:
        """What is left of the statement, a query, with blanks for what stands before it."""
        check_reading(self.raw, self.text.tokens)
        if self.index >= len(self.tokens):
            self.fail("a query is expected")
        start, end = self.tokens[self.index].start, self.tokens[-1].end + 1
        self.index = len(self.tokens)
        blank = "".join("\n" if c == "\n" else " " for c in self.text.sql[:start])
        return blank + self.text.sql[start:end]

    # statements

    def alter(self) -> AlterView | None:
        if not self.take("ALTER", "MATERIALIZED", "VIEW"):
            return None
        name = self.name()
        if self.take("FROM"):
            program = self.program()
            return AlterView(name, "", program)
        if not self.take("AS"):
            self.fail("AS or FROM is expected")
        return AlterView(name, self.rest())

    def program(self) -> str:
        """The file of a Datalog program, with which a statement ends."""
        file = self.string()
        self.done()
        return file

    def statement(self) -> Statement:
        if self.take("EXPLAIN"):
            if self.words()[:1] == ["CREATE"]:
                created = self.create()
                return ExplainCreate(created) if created else self.spark()
            if self.take("REFRESH", "MATERIALIZED", "VIEW"):
                name = self.name()
                self.done()
                return ExplainRefresh(name)
            altered = self.alter()
            return ExplainAlter(altered) if altered else self.spark()
        if self.words()[:1] == ["CREATE"]:
            return self.create() or self.create_table() or self.change_schema() or self.plain_view() or self.spark()
        if self.take("REFRESH", "MATERIALIZED", "VIEW"):
            return self.refresh()
        altered = self.alter()
        if altered is not None:
            return altered
        if self.take("DROP", "MATERIALIZED", "VIEW"):
            if_exists = self.take("IF", "EXISTS")
            name = self.name()
            self.done()
            return DropView(name, if_exists)
        if self.take("SHOW", "MATERIALIZED", "VIEWS"):
            schema = self.name() if self.take("IN") or self.take("FROM") else ()
            self.done()
            return ShowViews(schema)
        if self.take("DESCRIBE", "HISTORY") or self.take("DESC", "HISTORY"):
            name = self.name()
            return DescribeHistory(name) if self.index == len(self.tokens) else self.spark()
        return self.drop() or self.change_schema() or self.plain_view() or self.rename() or self.spark()

    def drop(self) -> DropTable | None:
        for kind in ("TABLE", "VIEW"):
            if self.take("DROP", kind):
                self.take("IF", "EXISTS")
                return DropTable(self.name(), self.spark().sql, kind)
        return None

    def change_schema(self) -> ChangeSchema | None:
        for verb in ("CREATE", "DROP"):
            for noun in ("SCHEMA", "DATABASE", "NAMESPACE"):
                if self.take(verb, noun):
                    self.take("IF", "NOT", "EXISTS")
                    self.take("IF", "EXISTS")
                    name = self.name()
                    others = [self.peek(n) for n in range(len(self.tokens) - self.index)]
                    return ChangeSchema(name, self.spark().sql, verb == "DROP", "LOCATION" in others)
        return None

    def plain_view(self) -> ChangePlainView | None:
        start = self.index
        if self.take("CREATE"):
            self.take("OR", "REPLACE")
            if self.take("VIEW"):
                self.take("IF", "NOT", "EXISTS")
                return ChangePlainView(self.name(), self.spark().sql)
        elif self.take("ALTER", "VIEW"):
            return ChangePlainView(self.name(), self.spark().sql)
        self.index = start
        return None

    def rename(self) -> RenameTable | MoveTable | None:
        start = self.index
        if self.take("ALTER", "TABLE"):
            name = self.name()
            if self.take("RENAME", "TO"):
                return RenameTable(name, self.spark().sql)
            if self.take("SET", "LOCATION"):
                return MoveTable(name, self.string(), self.spark().sql)
        self.index = start
        return None

    def spark(self) -> SparkStatement:
        return SparkStatement(self.raw[: self.tokens[-1].end + 1])

    def refresh(self) -> RefreshView:
        name = self.name()
        full = self.take("FULL")
        as_of: int | str | None = None
        if self.take("VERSION", "AS", "OF"):
            as_of = self.number()
        elif self.take("TIMESTAMP", "AS", "OF"):
            as_of = self.string()
        self.done()
        return RefreshView(name, full, as_of)

    def number(self) -> int:
        digits = self.tokens[self.index].text if self.index < len(self.tokens) else ""
        if not digits.isdecimal() or len(digits) > 18:
            self.fail("a number is expected")
        self.index += 1
        return int(digits)

    def create(self) -> CreateView | None:
        start = self.index
        self.need("CREATE")
        or_replace = self.take("OR", "REPLACE")
        if not self.take("MATERIALIZED", "VIEW"):
            self.index = start
            return None
        if_not_exists = self.take("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            self.fail("OR REPLACE and IF NOT EXISTS exclude each other: a name is expected")
        name = self.name()
        clauses = _Clauses(self)
        clauses.read()
        program = self.program() if clauses.from_program else None
        return CreateView(
            name,
            self.rest() if program is None else "",
            program,
            clauses.columns,
            clauses.comment,
            clauses.partitioned_by,
            clauses.clustered_by,
            clauses.properties,
            clauses.policy,
            or_replace,
            if_not_exists,
        )

    def create_table(self) -> CreateTable | None:
        start = self.index
        self.need("CREATE")
        self.take("OR", "REPLACE")
        if not self.take("TABLE"):
            self.index = start
            return None
        self.take("IF", "NOT", "EXISTS")
        name = self.name()
        if self.peek() == "(":
            self.index = self.text.closing(self.index) + 1
        if self.take("USING"):  # stands before all other clauses
            self.name()
        like = self.words()[:1] == ["LIKE"] or "CLONE" in self.words()[:2]  # a LOCATION stands at the end of these
        end = self.tokens[-1].end + 1
        cut = end if like or self.index >= len(self.tokens) else self.tokens[self.index].start
        others = [self.peek(n) for n in range(len(self.tokens) - self.index)]
        clause_words = others[: others.index("AS")] if "AS" in others and not like else others
        return CreateTable(name, self.text.sql[:cut], self.text.sql[cut:end], "LOCATION" in clause_words)


def _is_word(token: Token) -> bool:
    """Whether a token can be a name."""
    plain = token.text[:1].isalnum() or token.text[:1] == "_"
    return token.token_type is TokenType.IDENTIFIER or (plain and token.token_type is not TokenType.STRING)


class _Clauses:
    """What may stand between a view's name and AS or FROM, in any order, each once."""

    def __init__(self, parser: _Parser) -> None:
        self.parser = parser
        self.columns: tuple[tuple[str, str | None], ...] = ()
        self.comment: str | None = None
        self.partitioned_by: tuple[str, ...] = ()
        self.clustered_by: tuple[str, ...] = ()
        self.properties: dict[str, str] = {}
        self.policy = Policy.AUTO
        self.from_program = False

    def read(self) -> None:
        p = self.parser
        seen: set[str] = set()
        if p.peek() == "(":
            self.columns = self.column_list()
        while not p.take("AS"):
            self.from_program = p.take("FROM")
            if self.from_program:
                break
            clause = self.clause()
            if clause in seen:
                p.index -= 1
                p.fail(f"{clause} stands twice")
            seen.add(clause)
        if self.partitioned_by and self.clustered_by:
            raise ConfigurationError("a view is either PARTITIONED BY or CLUSTER BY, not both")

    def clause(self) -> str:
        p = self.parser
        if p.take("COMMENT"):
            self.comment = p.string()
            return "COMMENT"
        if p.take("PARTITIONED", "BY"):
            self.partitioned_by = self.name_list()
            return "PARTITIONED BY"
        if p.take("CLUSTER", "BY"):
            self.clustered_by = self.name_list()
            return "CLUSTER BY"
        if p.take("TBLPROPERTIES"):
            self.properties = self.property_list()
            return "TBLPROPERTIES"
        if p.take("REFRESH", "POLICY"):
            self.policy = self.read_policy()
            return "REFRESH POLICY"
        p.fail("COMMENT, PARTITIONED BY, CLUSTER BY, TBLPROPERTIES, REFRESH POLICY, FROM or AS is expected")

    def read_policy(self) -> Policy:
        p = self.parser
        if p.take("INCREMENTAL", "STRICT"):
            return Policy.STRICT
        for policy in (Policy.AUTO, Policy.INCREMENTAL, Policy.FULL):
            if p.take(policy.value):
                return policy
        p.fail("AUTO, INCREMENTAL, INCREMENTAL STRICT or FULL is expected")

    def column_list(self) -> tuple[tuple[str, str | None], ...]:
        p = self.parser
        p.need("(")
        found = []
        while True:
            name = p.identifier()
            found.append((name, p.string() if p.take("COMMENT") else None))
            if not p.take(","):
                break
        p.need(")")
        return tuple(found)

    def name_list(self) -> tuple[str, ...]:
        p = self.parser
        p.need("(")
        names = [p.identifier()]
        while p.take(","):
            names.append(p.identifier())
        p.need(")")
        return tuple(names)

    def property_list(self) -> dict[str, str]:
        p = self.parser
        p.need("(")
        found: dict[str, str] = {}
        while True:
            key = self.property_key()
            p.take("=")
            found[key] = self.property_value()
            if not p.take(","):
                break
        p.need(")")
        return found

    def property_key(self) -> str:
        p = self.parser
        if p.index < len(p.tokens) and p.tokens[p.index].token_type is TokenType.STRING:
            return p.string()
        return ".".join(p.name())

    def property_value(self) -> str:
        p = self.parser
        if p.index < len(p.tokens) and p.tokens[p.index].token_type is TokenType.NUMBER:
            p.index += 1
            return p.tokens[p.index - 1].text
        if p.peek() in ("TRUE", "FALSE"):
            p.index += 1
            return p.tokens[p.index - 1].text.lower()
        return p.string()
