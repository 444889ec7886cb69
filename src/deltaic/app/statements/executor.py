"""Which statement is whose, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from deltaic.algebra.quoting import quote
from deltaic.app.catalogs.catalog import path_source
from deltaic.app.pipeline.status import history_of, views_of
from deltaic.app.refresh.engine import Engine
from deltaic.app.rolling.to_time import refresh_to
from deltaic.app.statements.explaining import alter_explained, create_explained, refresh_explained
from deltaic.app.statements.tables import TableStatements, is_elsewhere
from deltaic.app.statements.views import ViewStatements
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
    RefreshView,
    RenameTable,
    ShowViews,
    SparkStatement,
    Statement,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = (
    "view", "policy", "refreshes", "technique", "sources", "commits_behind", "materialized_at", "high_water_mark",
    "lag_seconds", "commits_waiting", "comment",
)  # fmt: skip


class Executor:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.catalog = engine, engine.catalog
        self.views, self.tables = ViewStatements(engine), TableStatements(engine)

    def run(self, statement: Statement) -> DataFrame:
        """The rows that a statement answers with; none, if it only does something."""
        match statement:
            case CreateView():
                self.views.create(statement)
                return self.nothing()
            case AlterView():
                self.views.alter(statement)
                return self.nothing()
            case DropView():
                self.views.drop(statement)
                return self.nothing()
            case RefreshView():
                name = self.catalog.qualified(statement.name)
                report = refresh_to(self.engine, name, statement.as_of, full=statement.full)
                return self.rows([{"result": line} for line in str(report).splitlines()])
            case ExplainCreate():
                return self.lines(create_explained(self.engine, statement.create))
            case ExplainRefresh():
                return self.lines(refresh_explained(self.engine, self.catalog.qualified(statement.name)))
            case ExplainAlter():
                return self.lines(alter_explained(self.engine, statement.alter))
            case ShowViews():
                return self.show(statement)
            case DescribeHistory():
                return self.history(statement)
            case MoveTable():
                self.tables.move(statement)
                return self.nothing()
            case DropTable():
                return self.tables.drop(statement)
            case CreateTable():
                return self.tables.create(statement)
            case RenameTable():
                return self.tables.rename(statement)
            case ChangeSchema():
                return self.tables.change_schema(statement)
            case ChangePlainView():
                return self.tables.change_plain_view(statement)
            case SparkStatement():
                return self.tables.spark(statement.sql)

    def show(self, statement: ShowViews) -> DataFrame:
        views = views_of(self.engine)
        if statement.schema:
            views = [v for v in views if v["view"].split(".")[0].lower() == statement.schema[-1].lower()]
        return self.rows(views, ", ".join(f"{n} string" for n in _SHOWN))

    def history(self, statement: DescribeHistory) -> DataFrame:
        if path_source(statement.name) is None and not is_elsewhere(statement.name):
            own = self.catalog.qualified(statement.name)
            if self.catalog.is_view_name(*own):
                return self.rows(history_of(self.engine, own))
        return self.tables.spark(f"DESCRIBE HISTORY {'.'.join(quote(part) for part in statement.name)}")

    def rows(self, rows: list[dict[str, Any]], columns: str | None = None) -> DataFrame:
        names = columns or ", ".join(f"`{name}` string" for name in (rows[0] if rows else {"result": ""}))
        data = [tuple(None if v is None else str(v) for v in row.values()) for row in rows]
        return self.engine.spark.createDataFrame(data, names)

    def nothing(self) -> DataFrame:
        """As Spark answers to a statement that only does something."""
        return self.engine.spark.createDataFrame([], StructType([]))

    def lines(self, text: str) -> DataFrame:
        return self.rows([{"plan": line} for line in text.splitlines()], "plan string")
