"""The search for credentials finds them: in databases, logs and requests, in whatever form; and fails the run."""

from __future__ import annotations

import ast
import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests import leaks
from tests.credentials import CLIENT_SECRET, MARK, REFRESH, TOKEN_KEY, WEBHOOK_SECRET

ROOT = Path(__file__).parents[1]

LEAKING = """
import base64, logging, sqlite3

import httpx

from agent_runtime import ApiKey, Idempotency, Runtime, Tool, ToolContract
from tests.credentials import API_KEY, CLIENT_SECRET, REFRESH, STATIC, SUBJECT

KEYED = ToolContract(idempotency=Idempotency())


def send(headers=(), url="https://tools.test/pay", **content):
    with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={}))) as client:
        client.post(url, headers=dict(headers), **content)


def call(tmp_path, args, auth=None):
    client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={})))
    pay = Tool("pay", url="https://as.test/pay", contract=KEYED, auth=auth)  # a host whose requests are not looked at
    with client, Runtime(f"sqlite:///{tmp_path}/agent.db", tools=[pay], client=client) as runtime:
        runtime.open("plan").call(pay, args)


def test_leaks_into_a_row_of_the_ledger(tmp_path):
    call(tmp_path, {"note": REFRESH})


def test_leaks_into_a_file_of_its_own(tmp_path):
    conn = sqlite3.connect(tmp_path / "other.sqlite")
    conn.execute("CREATE TABLE t (x)")
    conn.execute("INSERT INTO t VALUES (?)", [CLIENT_SECRET])
    conn.commit()
    conn.close()


def test_leaks_into_a_log():
    logging.getLogger("somebody").debug("sends %s", SUBJECT)


def test_leaks_into_an_exception_that_is_logged():
    try:
        raise ValueError(SUBJECT)
    except ValueError:
        logging.getLogger("somebody").exception("no")


def test_leaks_to_a_tool_in_the_body():
    send(json={"token": SUBJECT})


def test_leaks_to_a_tool_in_the_url():
    send(url=f"https://tools.test/pay?token={STATIC}")


def test_leaks_to_a_tool_in_its_own_header():
    send({"Authorization": f"Bearer {SUBJECT}"})


def test_leaks_to_a_tool_in_base64():
    send({"Authorization": "Basic " + base64.b64encode(f"agent:{CLIENT_SECRET}".encode()).decode()})


def test_leaks_to_a_tool_in_another_header():
    send({"Idempotency-Key": STATIC})


def test_keeps_to_the_rules(tmp_path):
    call(tmp_path, {"note": "none"}, ApiKey(key=API_KEY))
    send({"Authorization": f"Bearer {STATIC}"})
    send({"X-API-Key": API_KEY})
    send(url="https://as.test/token", data={"refresh_token": REFRESH})
"""
SHARED = """
import sqlite3

from tests.credentials import REFRESH


def test_leaks_into_what_tests_share(tmp_path_factory):
    conn = sqlite3.connect(tmp_path_factory.mktemp("shared") / "agent.db")
    conn.execute("CREATE TABLE t (x)")
    conn.execute("INSERT INTO t VALUES (?)", [REFRESH])
    conn.commit()
    conn.close()
"""


def run(tmp_path: Path, source: str) -> str:
    """Run tests of a file under the plugin and return what pytest says."""
    path = tmp_path / "test_it.py"
    path.write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-rapE", "-p", "tests.leaks_plugin", "-p", "no:cacheprovider"]
    command += ["-p", "no:randomly", "-p", "no:xdist", "-c", os.devnull, "--rootdir", str(tmp_path), str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


def test_a_leak_fails_the_test_that_left_it(tmp_path: Path) -> None:
    """Each kind fails its own test and no other one; what goes where it belongs fails none."""
    said = run(tmp_path, LEAKING)
    wanted = set(re.findall(r"def (test_leaks\w+)", LEAKING))
    assert set(re.findall(r"^ERROR \S+::(\w+)", said, re.MULTILINE)) == wanted, said
    assert len(wanted) == 9
    assert f"{len(wanted) + 1} passed, {len(wanted)} errors" in said


def test_a_leak_into_what_tests_share_fails_the_run(tmp_path: Path) -> None:
    """It is found when the run ends, and counts as an error of its last test."""
    assert "1 passed, 1 error" in run(tmp_path, SHARED)


def test_a_leak_into_postgres_is_found_before_the_database_is_dropped(postgres_url: str) -> None:
    """In a text and inside bytes, in any table."""
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        conn.execute("CREATE TABLE blobs (x bytea)")
        conn.execute("CREATE TABLE texts (n int, x jsonb)")
        conn.execute("INSERT INTO blobs VALUES (%s)", [f"..{REFRESH}".encode()])
        conn.execute("INSERT INTO texts VALUES (1, jsonb_build_object('k', %s::text))", [CLIENT_SECRET])
        leaks.search_postgres(postgres_url)
        assert leaks.found == ["the table blobs", "the table texts"]
        leaks.found.clear()
        conn.execute("DROP TABLE blobs, texts")


def test_a_child_process_tells_its_parent() -> None:
    """What a process of a test's own sends to a tool is told to the run that started it."""
    source = f"""
import httpx
from tests import leaks
leaks.watch_requests()
with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200))) as client:
    client.get("https://tools.test/", params={{"q": {REFRESH!r}}})
leaks.tell_parent()
"""
    subprocess.run([sys.executable, "-c", source], cwd=ROOT, check=True, timeout=50)
    assert leaks.told_by_children() == ["the URL of a GET to tools.test"]
    assert leaks.told_by_children() == []


@pytest.mark.parametrize("before", ["", "a", "ab", "abc:"])
def test_forms_of_a_secret_are_known(before: str) -> None:
    """In clear, in hex, and in base64 wherever it begins."""
    secret = f"{before}{CLIENT_SECRET}".encode()
    assert leaks.holds(secret)
    assert leaks.holds(secret.hex().encode())
    assert leaks.holds(base64.b64encode(secret))
    assert leaks.holds(base64.urlsafe_b64encode(secret))
    assert not leaks.holds(b"a bird in a cage")


# By the name of the argument; and what stands first in a call of these.
NAMES = {"client_secret", "refresh_token", "subject_token", "token_key"}
CLASSES = {"StaticToken": "token", "ApiKey": "key"}
DOCUMENTED = {"agent-secret"}
"""Of the example's tool server, whose page shows it; tests send it to that server's token endpoint alone."""


def unmarked(path: Path) -> list[str]:
    """Return the credentials that stand in a file without the mark."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        for name, value in given(node):
            if name in NAMES and isinstance(value, ast.Constant) and isinstance(value.value, str):
                is_marked = not value.value or MARK in value.value or value.value in DOCUMENTED
                found += [] if is_marked else [f"{path.name}:{value.lineno}"]
    return found


def given(node: ast.AST) -> list[tuple[object, ast.expr | None]]:
    """Return the named values that stand in a call or in a dict."""
    if isinstance(node, ast.Dict):
        return [
            (key.value, value)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    if not isinstance(node, ast.Call):
        return []
    called = node.func.id if isinstance(node.func, ast.Name) else ""
    return [("token_key" if one.arg == CLASSES.get(called) else one.arg, one.value) for one in node.keywords]


def test_every_credential_of_a_test_bears_the_mark() -> None:
    """A secret that is written out in a test is one that the search knows; keys bear it in base64."""
    assert [one for path in sorted((ROOT / "tests").rglob("*.py")) for one in unmarked(path)] == []
    assert leaks.holds(TOKEN_KEY.encode())
    assert leaks.holds(WEBHOOK_SECRET.encode())
