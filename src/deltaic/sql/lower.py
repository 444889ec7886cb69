"""A query's tree to algebra, clause by clause.

The order of a SELECT is the order of `select`: FROM, WHERE, GROUP BY, HAVING, windows, QUALIFY,
the select list, DISTINCT. Set operations become an aggregate over tagged rows, as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from deltaic.algebra.expr import Expr, col, join_parts, text
from deltaic.algebra.nodes import Aggregate, Call, Field, Filter, Generate, Item, Node, Project, UnionAll, Values
from deltaic.algebra.reasons import Code, NotLowered, too_deep
from deltaic.algebra.recursion import Component
from deltaic.algebra.set_operations import is_present
from deltaic.algebra.size import why_too_large
from deltaic.algebra.trees import keep
from deltaic.sql.block import Block, Context, distinct
from deltaic.sql.from_clause import Relation, lower_from
from deltaic.sql.parse import Span, Text, span_of, start_of
from deltaic.sql.recursive import recursive_ctes
from deltaic.sql.render import stub
from deltaic.sql.scope import Catalog, Cte, Ctes, Derived, Scope
from deltaic.sql.select import lower_select


@dataclass(frozen=True)
class Lowered:
    """A query as algebra: the node, and the visible names of its columns in order."""

    node: Node
    names: tuple[str, ...]
    components: tuple[Component, ...] = ()
    """Predicates that the query defines by recursion, and scans."""
    defined: Mapping[Span, Derived] = field(default_factory=dict)
    """Where in the text they are."""


def lower(tree: exp.Expr, sql: Text, catalog: Catalog) -> Lowered:
    """Raises NotLowered, with its reason, for a query that has no algebra."""
    context = Context(sql, catalog)
    _check_tokens(context)
    try:
        relation = Lowering(context).query(tree, Ctes(), None)
    except RecursionError:
        raise NotLowered(too_deep()) from None
    large = why_too_large(relation.node)
    if large is not None:
        raise NotLowered(large)
    return Lowered(relation.node, relation.names, tuple(context.components), context.defined)


def _check_tokens(context: Context) -> None:
    """Syntax in which sqlglot's tree is not what Spark reads."""
    kinds = {token.token_type: token.start for token in reversed(context.text.tokens)}
    if TokenType.PIPE_GT in kinds:
        context.refuse(Code.UNSUPPORTED_SYNTAX, "operators after |>", kinds[TokenType.PIPE_GT], "Write it as a SELECT.")
    if TokenType.COLON in kinds and TokenType.STRUCT not in kinds:
        hint = "variant_get(v, '$.field', 'type') says the same."
        context.refuse(Code.UNSUPPORTED_SYNTAX, "a field of a VARIANT by a colon", kinds[TokenType.COLON], hint)


def _no_subquery(block: Block, tree: exp.Expr, span: Span) -> Expr:
    block.context.refuse(Code.UNSUPPORTED_SYNTAX, "a subquery in VALUES", span[0])


def _stands_apart(tree: exp.Expr) -> bool:
    """Whether a set operation has clauses of its own."""
    clauses = ("with_", "with", "order", "limit", "offset", "fetch", "sample", "pivots")
    return any(tree.args.get(name) for name in clauses)


class Lowering:
    def __init__(self, context: Context) -> None:
        self.context = context

    def query(self, tree: exp.Expr, ctes: Ctes, outer: Scope | None) -> Relation:
        ctes = self.with_ctes(tree, ctes)
        self.check_modifiers(tree)
        match tree:
            case exp.Select():
                return lower_select(self, tree, ctes, outer)
            case exp.SetOperation():
                return self.set_operation(tree, ctes, outer)
            case exp.Subquery() if not isinstance(tree.this, exp.Table):
                return self.query(tree.this, ctes, outer)
            case exp.Values():
                return self.values(tree)
            case exp.Table() | exp.Subquery():
                block = lower_from(self, tree, [], ctes, outer)
                return Relation(block.node, tuple(e.name for e in block.scope.star(())))
        self.context.refuse(Code.UNSUPPORTED_SYNTAX, f"{type(tree).__name__.upper()} cannot be lowered")

    def with_ctes(self, tree: exp.Expr, ctes: Ctes) -> Ctes:
        clause = tree.args.get("with_") or tree.args.get("with")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            return recursive_ctes(self, clause, ctes)
        for cte in clause.expressions:
            columns = tuple(c.name for c in cte.args["alias"].args.get("columns") or ())
            ctes = ctes.having(cte.alias, Cte(cte.this, columns, ctes))
        return ctes

    def check_modifiers(self, tree: exp.Expr) -> None:
        for clause in ("limit", "offset", "fetch"):
            found = tree.args.get(clause)
            if found is not None:
                what = f"{clause.upper()} keeps some rows of all"
                self.context.refuse(Code.LIMIT, what, start_of(found), "Rank by a partition instead.")
        for clause, code in (("pivots", Code.PIVOT), ("sample", Code.SAMPLE)):
            if tree.args.get(clause):
                self.context.refuse(code, code.value, start_of(tree))

    def values(self, tree: exp.Values) -> Relation:
        rows = []
        block = Block(self.context, Values(((),), ()), Scope(), Ctes(), _no_subquery)
        for row in tree.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            for cell in cells:
                if isinstance(cell, exp.Alias):  # VALUES 1, 2 AS t: sqlglot gives the name to the last cell
                    self.context.refuse(Code.UNSUPPORTED_SYNTAX, "VALUES without parentheses and with a name")
                block.check_functions(cell, span_of(cell))
            rows.append(tuple(text(self.context.text.slice(span_of(cell))) for cell in cells))
        written = ", ".join("(" + ", ".join(cell.sql for cell in row) + ")" for row in rows)
        typed = self.context.catalog.types(f"SELECT * FROM VALUES {written}")
        fields = tuple(Field(self.context.names.fresh(f.name), f.type) for f in typed)
        return Relation(Values(tuple(rows), fields), tuple(f.name for f in typed))

    def set_operation(self, tree: exp.SetOperation, ctes: Ctes, outer: Scope | None) -> Relation:
        """A chain of them from the left: no deeper than it has different ones, however long it is."""
        chain: list[exp.SetOperation] = [tree]
        while isinstance(chain[-1].left, exp.SetOperation) and not _stands_apart(chain[-1].left):
            chain.append(chain[-1].left)
        found = self.query(chain[-1].left, ctes, outer)
        node, union = found.node, None
        for operation in reversed(chain):
            if operation.args.get("by_name"):
                self.context.refuse(Code.UNSUPPORTED_SYNTAX, "UNION BY NAME")
            right = self.query(operation.right, ctes, outer).node
            distinct_rows = bool(operation.args.get("distinct"))
            if not isinstance(operation, exp.Union):
                node, union = self.counted_copies(node, right, operation, distinct_rows), None
                continue
            # DISTINCT (DISTINCT A + B)  =  DISTINCT (A + B); what is added to a set is not
            longer = union if union is not None and (distinct_rows or node is union) else None
            union = self.union(longer, right) if longer is not None else self.union(node, right)
            node = distinct(union) if distinct_rows else union
        return Relation(node, found.names)

    def union(self, left: Node, right: Node) -> UnionAll:
        """Of two, in the types that Spark gives both; a union of the very types only gets one more branch."""
        kinds = [f.type for f in left.schema]
        if kinds != [f.type for f in right.schema]:
            query = " UNION ALL ".join(f"SELECT * FROM {stub(side.schema)}" for side in (left, right))
            kinds = [f.type for f in self.context.catalog.types(query)]
        names = [name.split("#")[0] for name in left.columns]
        fields = tuple(
            Field(self.context.names.fresh(name), kind, one.nullable or other.nullable)
            for name, kind, one, other in zip(names, kinds, left.schema, right.schema, strict=True)
        )
        longer = isinstance(left, UnionAll) and kinds == [f.type for f in left.schema]
        branches = left.branches if longer and isinstance(left, UnionAll) else (self.widened(left, fields),)
        return UnionAll((*branches, self.widened(right, fields)), fields)

    def widened(self, branch: Node, fields: tuple[Field, ...]) -> Node:
        """The branch in the union's types: a rule may take it out of the union, where Spark would not widen it."""
        if all(own.type == wide.type for own, wide in zip(branch.schema, fields, strict=True)):
            return branch
        items = tuple(
            Item(own.name, col(own.name), own.type, own.nullable)
            if own.type == wide.type
            else Item(
                self.context.names.fresh(own.name.split("#")[0]),
                join_parts("CAST(", col(own.name), f" AS {wide.type})"),
                wide.type,
                own.nullable,
            )
            for own, wide in zip(branch.schema, fields, strict=True)
        )
        return Project(branch, items)

    def counted(self, left: Node, right: Node) -> Aggregate:
        """Each row of either side once, with how often it stands in the left and in the right."""

        def tagged(node: Node, here: str, there: str) -> Project:
            marks = tuple(Item(self.context.names.fresh("side"), text(m), "bigint", False) for m in (here, there))
            return Project(node, keep(node) + marks)

        both = self.union(tagged(left, "1L", "0L"), tagged(right, "0L", "1L"))
        *rows, here, there = both.schema
        groups = tuple(Item(f.name, col(f.name), f.type, f.nullable) for f in rows)
        counts = tuple(
            Item(
                self.context.names.fresh("copies"),
                join_parts("sum(", col(f.name), ")"),
                "bigint",
                call=Call("sum", (col(f.name),), ("bigint",)),
            )
            for f in (here, there)
        )
        return Aggregate(both, groups, counts)

    def counted_copies(self, left: Node, right: Node, tree: exp.SetOperation, distinct_rows: bool) -> Node:
        """INTERSECT keeps a row min(l, r) times, EXCEPT max(l - r, 0) times; without ALL, once at most."""
        counted = self.counted(left, right)
        here, there = (col(name) for name in counted.columns[-2:])
        rows = keep(counted)[:-2]
        common = isinstance(tree, exp.Intersect)
        if distinct_rows:
            return Project(Filter(counted, is_present(here, there, common=common), common), rows)
        copies = join_parts("least(", here, ", ", there, ")") if common else join_parts(here, " - ", there)
        generator = join_parts("explode(array_repeat(0, CAST(greatest(", copies, ", 0L) AS INT)))")
        number = Field(self.context.names.fresh("copy"), "int", False)
        return Project(Generate(counted, generator, False, (number,)), rows)
