"""The command line: what each command prints, for people and for programs, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from deltaic import __version__
from deltaic.app.pipeline.pipeline import Pipeline
from deltaic.app.terminal.cli import app, in_place, main
from deltaic.app.terminal.failure import ExitCode, failure_of
from deltaic.errors import ConcurrentRefresh, NameProblem, NotIncremental, Position

SCRIPT = """
CREATE TABLE sales (store INT, price DECIMAL(9, 2));
INSERT INTO sales VALUES (1, 2.50), (1, 0.25), (2, NULL); -- a comment; with a semicolon
CREATE MATERIALIZED VIEW totals COMMENT 'per store' AS SELECT store, sum(price) AS total FROM sales GROUP BY store;
CREATE MATERIALIZED VIEW best AS SELECT store, total FROM totals ORDER BY total DESC LIMIT 1;
"""

Run = Callable[..., Result]


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin, env={"COLUMNS": "140"})


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse that the command line itself has made."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "make.sql").write_text(SCRIPT)
    made = run("sql", "--file", str(folder / "make.sql"), "-w", str(folder / "wh"))
    assert made.exit_code == 0, made.stderr
    return folder / "wh"


@pytest.fixture
def on(here: Path) -> Run:
    """Runs a command on that warehouse."""

    def on_it(command: str, *arguments: str, stdin: str | None = None) -> Result:
        return run(command, *arguments, "-w", str(here), stdin=stdin)

    return on_it


def parsed(result: Result) -> Any:
    """The whole of stdout as JSON: nothing else may be on it."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# without Spark


def shell(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_help_and_version_do_without_spark() -> None:
    for option in ("--help", "--version"):
        code = f"""
import sys, atexit
atexit.register(lambda: print("heavy:", [m for m in ("pyspark", "pyarrow", "sqlglot") if m in sys.modules]))
sys.argv = ["deltaic", "{option}"]
from deltaic.app.terminal.cli import main
main()
"""
        done = shell(code)
        assert done.returncode == 0
        assert "heavy: []" in done.stdout
        assert ("Exit codes" if option == "--help" else f"deltaic {__version__} (Spark 4.") in done.stdout


def test_the_help_names_the_commands_and_the_exit_codes() -> None:
    text = run("--help").stdout
    assert all(command in text for command in ("sql", "refresh", "explain", "status", "history", "check", "doctor"))
    assert all(f" {code} " in text for code in (0, 1, 2, 3, 4, 5, 6, 130))


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("sql", "--no-such-option"),
        ("sql", ""),
        ("sql", "--file", "/no/such/file.sql"),
        ("sql", "SELECT 1", "--file", __file__),
        ("sql", "SELECT 1", "--rows", "-1"),
        ("history",),
        ("demo", "--rows", "0"),
        ("demo", "--keep", str(Path(__file__).parent)),
        ("check", "--sample", "0"),
        ("repair",),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr
    assert not done.stdout


@pytest.mark.parametrize("arguments", [["history"], ["sql", "-n", "x"], ["check", "--sample", "0"], ["frobnicate"]])
def test_wrong_usage_as_json(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["deltaic", *arguments, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert json.loads(told.err)["error"] == "USAGE"
    assert not told.out


def test_only_sql_makes_a_warehouse(tmp_path: Path) -> None:
    done = run("status", "-w", str(tmp_path / "none"))
    assert done.exit_code == ExitCode.FAILED
    assert "error [MISSING]: there is no warehouse at" in done.stderr
    assert "DELTAIC_WAREHOUSE" in done.stderr
    assert not (tmp_path / "none").exists()


def test_each_error_has_its_exit_code() -> None:
    refused = failure_of(NotIncremental("no", at=Position(2, 5), hint="Do this."))
    assert refused.exit_code.value == 3
    assert refused.as_text() == "error [NOT_INCREMENTAL]: no (line 2, column 5)\n  Do this."
    told = {"error": "NOT_INCREMENTAL", "message": "no", "hint": "Do this.", "line": 2, "column": 5}
    assert json.loads(refused.as_json()) == told
    assert failure_of(ConcurrentRefresh("late")).exit_code.value == 4
    assert failure_of(NameProblem("what")).exit_code.value == 1
    assert failure_of(PermissionError(13, "Permission denied", "/x")).error == "SYSTEM"
    text = "Division by zero. SQLSTATE: 22012 (line 1, pos 7)\n== SQL ==\nSELECT 1 / 0"
    spark = failure_of(PySparkException(text, errorClass="DIVIDE_BY_ZERO", messageParameters={}))
    assert (spark.error, spark.message) == ("DIVIDE_BY_ZERO", "Division by zero.")
    assert (spark.line, spark.column, spark.is_bug) == (1, 8, False)
    bug = failure_of(ZeroDivisionError("x"))
    assert bug.is_bug
    assert "bug in Deltaic" in bug.as_text()


FAILING = """
import time, typer
from deltaic.app.terminal.failure import told
from deltaic.app.terminal.printing import console
app = typer.Typer()
@app.command()
def main():
    with told(False):
        {}
app()
"""


def test_ctrl_c_ends_quietly() -> None:
    done = shell(FAILING.format("raise KeyboardInterrupt"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("body", ["print('x', flush=True)", "console().print('x')"])
def test_a_reader_that_leaves_ends_it_quietly(body: str) -> None:
    code = FAILING.format(f"while True: {body}; time.sleep(0.001)")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        assert writer.stdout.readline() == "x\n"
        writer.stdout.close()
        assert (writer.wait(60), writer.stderr.read()) == (141, "")


def test_statements_keep_their_place_in_the_script() -> None:
    script = "SELECT 1;\n  SELECT\n nope"
    placed = in_place(script, ["SELECT 1", "\n  SELECT\n nope"])
    assert placed == ["SELECT 1", " " * 9 + "\n  SELECT\n nope"]


# sql


def test_sql_prints_a_table(on: Run) -> None:
    done = on("sql", "SELECT store, price, 'x' AS x FROM sales ORDER BY price DESC")
    assert done.exit_code == 0
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines == ["store  price  x", "    1   2.50  x", "    1   0.25  x", "    2   NULL  x", "(3 rows)"]


def test_sql_limits_what_it_shows(on: Run) -> None:
    shown = on("sql", "SELECT id FROM range(100)").stdout.splitlines()
    assert len(shown) == 22
    assert shown[-1] == "(the first 20 rows; --rows N shows more)"
    assert on("sql", "SELECT id FROM range(100)", "--rows", "100").stdout.splitlines()[-1] == "(100 rows)"
    assert len(parsed(on("sql", "SELECT id FROM range(100)", "--json"))[0]["rows"]) == 100
    limited = parsed(on("sql", "SELECT id FROM range(100)", "--json", "-n", "2"))[0]
    assert (limited["rows"], limited["truncated"]) == ([[0], [1]], True)


def test_sql_as_json_keeps_values(on: Run) -> None:
    query = """SELECT 1.10 AS d, DATE'2026-01-02' AS day, TIMESTAMP_NTZ'2026-01-02 03:04:05' AS t, X'00FF' AS b,
        array(1, NULL) AS a, named_struct('k', NULL, 'v', 2.5D) AS s, map(1, 'x') AS m,
        array(named_struct('d', 12345678901234567890.10, 'i', map('k', 7.0))) AS deep, double('nan') AS nan,
        NULL AS nothing, true AS yes, 9007199254740993 AS big, 'q"\n' AS text, 1 AS text"""
    (result,) = parsed(on("sql", query, "--json"))
    assert result["columns"][0] == {"name": "d", "type": "decimal(3,2)"}
    assert [column["name"] for column in result["columns"]][-2:] == ["text", "text"]
    expected: list[Any] = [
        "1.10",
        "2026-01-02",
        "2026-01-02 03:04:05",
        "AP8=",
        [1, None],
        {"k": None, "v": 2.5},
        {"1": "x"},
    ]
    expected.append([{"d": "12345678901234567890.10", "i": {"k": "7.0"}}])
    assert result["rows"] == [[*expected, "nan", None, True, 9007199254740993, 'q"\n', 1]]


def test_sql_reads_files_as_people_write_them(on: Run, tmp_path: Path) -> None:
    file = tmp_path / "of windows.sql"
    file.write_bytes("SELECT 'ü' AS a;\r\nSELECT 2 AS b".encode("utf-8-sig"))
    assert [result["rows"] for result in parsed(on("sql", "--json", "--file", str(file)))] == [[["ü"]], [[2]]]
    file.write_bytes("SELECT 'ü' AS a".encode("latin-1"))
    told = on("sql", "--json", "--file", str(file))
    assert told.exit_code == 1
    assert json.loads(told.stderr)["error"] == "PARSE"


def test_sql_takes_several_statements_from_stdin(on: Run) -> None:
    results = parsed(on("sql", "--json", stdin="SELECT 1 AS a; ;\nSELECT ';' AS b;"))
    assert [(r["statement"], r["rows"]) for r in results] == [("SELECT 1 AS a", [[1]]), ("SELECT ';' AS b", [[";"]])]
    shown = on("sql", "-", stdin="SELECT 1 AS a; SET x.y = 1")
    assert shown.stdout.splitlines()[:2] == ["a", "1"]


def test_the_place_of_an_error_is_that_in_the_script(on: Run) -> None:
    done = on("sql", "--json", stdin="SELECT 1;\n\nSELECT nope\nFROM sales")
    assert done.exit_code == ExitCode.FAILED
    assert done.stdout == ""
    told = json.loads(done.stderr)
    assert (told["error"], told["line"], told["column"]) == ("UNRESOLVED_COLUMN.WITH_SUGGESTION", 3, 8)
    ours = on("sql", "--json", stdin="SELECT 1;\nCREATE MATERIALIZED VIEW m AS\nSELECT nope FROM sales")
    assert json.loads(ours.stderr)["line"] == 3


def test_sparks_errors_are_one_line(on: Run) -> None:
    for statement, word in (
        ("SELECT * FROM missing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELEC 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1 / 0", "DIVIDE_BY_ZERO"),
    ):
        done = on("sql", statement)
        assert done.exit_code == ExitCode.FAILED
        assert done.stderr.startswith(f"error [{word}")
        assert len(done.stderr.splitlines()) == 1
        assert "SQLSTATE" not in done.stderr


def test_a_strict_policy_is_refused_with_3(on: Run) -> None:
    statement = "CREATE MATERIALIZED VIEW s REFRESH POLICY INCREMENTAL STRICT AS SELECT store FROM sales LIMIT 1"
    done = on("sql", statement)
    assert done.exit_code == ExitCode.REFUSED
    assert done.stderr.startswith("error [NOT_INCREMENTAL]")
    assert "REFRESH POLICY AUTO" in done.stderr.splitlines()[-1]
    assert json.loads(on("sql", statement, "--json").stderr)["error"] == "NOT_INCREMENTAL"


# views


def test_refresh_status_and_history_tell_the_same_story(on: Run) -> None:
    on("sql", "INSERT INTO sales VALUES (2, 8.00)")
    behind = {view["view"]: view["commits_behind"] for view in parsed(on("status", "--json"))}
    assert behind["default.totals"] == {"default.sales": 1}
    assert "default.sales 1" in on("status").stdout

    reports = {report["view"]: report for report in parsed(on("refresh", "--json"))}
    assert reports["default.totals"]["mode"] == "incremental"
    assert reports["default.best"]["reasons"][0].startswith("LIMIT")
    assert parsed(on("sql", "SELECT total FROM best", "--json"))[0]["rows"] == [["8.00"]]

    again = on("refresh")
    assert again.stdout.count("noop") == 2
    assert on("status").stdout.count("none: fresh") == 2
    commits = parsed(on("history", "totals", "--json"))
    assert [commit["mode"] for commit in commits] == ["incremental", "full"]
    assert "default.sales v" in on("history", "totals").stdout


def test_refresh_of_named_views_goes_in_their_order(on: Run) -> None:
    reports = parsed(on("refresh", "best", "totals", "--full", "--json"))
    assert [(report["view"], report["mode"]) for report in reports] == [
        ("default.totals", "full"),
        ("default.best", "full"),
    ]
    assert "default.totals" in on("refresh", "totals").stdout


def test_a_view_that_is_not_there(on: Run) -> None:
    for command in ("refresh", "history", "explain"):
        done = on(command, "nowhere", "--json")
        assert done.exit_code == ExitCode.FAILED
        assert json.loads(done.stderr)["error"] == "MISSING"


def test_reports_are_told_though_one_view_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    """And nothing but the error stands on stderr, whatever is wrong with other views."""
    place = str(tmp_path / "wh")
    strict = "CREATE MATERIALIZED VIEW {} REFRESH POLICY INCREMENTAL STRICT AS SELECT store FROM sales WHERE price > 0"
    assert run("sql", f"{SCRIPT}; {strict.format('one')}; {strict.format('two')}", "-w", place).exit_code == 0
    for name in ("one", "two"):
        assert run("sql", f"DELETE FROM delta.`{place}/default/{name}`", "-w", place).exit_code == 0
    done = run("refresh", "--json", "-w", place)
    assert done.exit_code == ExitCode.REFUSED
    assert {report["view"] for report in json.loads(done.stdout)} == {"default.totals", "default.best"}
    assert json.loads(done.stderr)["error"] == "NOT_INCREMENTAL"


def test_a_folder_that_is_no_warehouse(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("mine")
    done = run("status", "--json", "-w", str(tmp_path))
    assert (done.exit_code, json.loads(done.stderr)["error"]) == (ExitCode.FAILED, "MISSING")
    assert [file.name for file in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_lost_race_ends_with_4(on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise ConcurrentRefresh("another refresh of default.totals was quicker")

    monkeypatch.setattr(Pipeline, "refreshed", lost)
    done = on("refresh")
    assert (done.exit_code, done.stderr.count("\n")) == (ExitCode.LOST, 1)


def test_explain(on: Run) -> None:
    on("sql", "INSERT INTO sales VALUES (3, 1.00)")
    assert "Refresh now: incremental" in on("explain", "totals").stdout
    plan = parsed(on("explain", "totals", "--json"))
    assert (plan["view"], plan["mode"]) == ("default.totals", "incremental")
    assert plan["sources"][0]["change_rows"] == 1
    assert plan["steps"][-1]["title"]
    statement = "CREATE MATERIALIZED VIEW x AS SELECT DISTINCT store FROM sales"
    assert "Sources: default.sales" in parsed(on("explain", statement, "--json"))["text"]


# check, repair, doctor


def test_check_repair_and_doctor(tmp_path: Path, spark: SparkSession) -> None:
    place = str(tmp_path / "wh")
    making = SCRIPT + "; CREATE MATERIALIZED VIEW drawn AS SELECT store, rand() AS r FROM sales"
    assert run("sql", "-", "-w", place, stdin=making).exit_code == 0
    all_of_them = run("check", "-w", place, "--json")
    assert all_of_them.exit_code == ExitCode.UNCERTAIN
    assert {one["view"]: one["verdict"] for one in json.loads(all_of_them.stdout)} == {
        "default.best": "equal",
        "default.drawn": "uncertain",
        "default.totals": "equal",
    }
    edit = f"UPDATE delta.`{place}/default/totals` SET total = 3 WHERE store = 1"
    assert run("sql", edit, "-w", place).exit_code == 0
    wrong = run("check", "totals", "-w", place)
    assert wrong.exit_code == ExitCode.DIFFERS
    assert "default.totals  differs" in wrong.stdout
    assert "1 missing, 1 extra" in wrong.stdout
    found = run("doctor", "-w", place, "--json")
    assert found.exit_code == 0, found.stdout
    told = {finding["what"]: finding for finding in json.loads(found.stdout)["findings"]}
    assert any("default.totals: VIEW_EDITED" in what and told[what]["severity"] == "warning" for what in told)
    assert any("default.drawn is recomputed by every refresh: NON_DETERMINISTIC" in what for what in told)
    mended = run("repair", "totals", "-w", place)
    assert mended.exit_code == 0, mended.stderr
    assert "recomputed" in mended.stdout
    right = run("check", "totals", "-w", place)
    assert (right.exit_code, right.stdout) == (0, "default.totals  equal  2 rows at default.sales v1\n")


def test_the_doctor_comes_to_a_machine_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = run("doctor", "-w", str(tmp_path / "none"))
    assert found.exit_code == ExitCode.FAILED
    lines = [line.split() for line in found.stdout.splitlines()]
    assert lines[0][:4] == ["error", "Java", "there", "is"]
    assert any(line[:2] == ["note", "Spark"] for line in lines)
    assert not (tmp_path / "none").exists()
