"""Every example runs from any folder, tells the truth in its last line, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[1]
LAST_LINES = {
    "quickstart": "quickstart: 2 runs, 1 database",
    "crash_and_resume": "crash_and_resume: 3 steps, 3 effects, 0 duplicates",
    "function_tool": "function_tool: 2 runs, 1 charge",
    "unknown_outcome": "unknown_outcome: 1 effect, 0 open questions",
    "async_agent": "async_agent: 2 runs, 6 effects for 6 steps, the same results",
    "chat_loop": "chat_loop: 3 effects wanted, 3 happened, 1 call was refused",
    "report_generation": "report_generation: 1 report, 1 link that works",
    "bulk_import": "bulk_import: 2 imports wanted, 2 happened, 0 claimed as full success",
    "long_build": "long_build: 1 build started, picked up by another run: succeeded",
    "on_behalf_of": "on_behalf_of: 2 orders, 2 exchanges",
    "langgraph_agent": "langgraph_agent: 2 duplicates as it is, 0 with a session",
}
SAYS = {
    "quickstart": [r"step_001 from sent: (db-\w+)\n(?s:.*)step_001 from ledger: \1\n"],
    "crash_and_resume": [
        r"killed; effects so far: 2\n",
        r"step_002 +debit +in_flight +1 +send again under the same key\n",
        r"step_001  ledger  (?s:.*)the tool gave its first answer again(?s:.*)step_003  sent ",
    ],
    "function_tool": [r"parameters: card, cents\n", r"step_001 failed, effect: none\n", r"from ledger: receipt 1\n"],
    "unknown_outcome": [
        r"NOT KNOWN whether the call took effect",
        r"the same in other words: not_started",
        r"step_001 from ledger: {'debit_id': '\w+'}",
    ],
    "async_agent": [r"sent: 6, from the ledger: 0\n(?s:.*)sent: 0, from the ledger: 6\n", r"frankfurt\.step_002 "],
    "on_behalf_of": [r"waits for auth: interaction_required\n.*acrs"],
    "chat_loop": [
        r"died with 1 message saved; effects so far: 2\n",
        r"msg2\.0  old_debit .*: unknown\n  msg3\.0  old_debit .*: not_started\n",
        r"told: It is NOT KNOWN whether .*\n.*told: The call was NOT started; nothing was sent",
    ],
    "report_generation": [
        r"waited a second: timed_out, done: False, job: True\n",
        r"the model reads: The job was started and is NOT finished",
        r"1 job\(s\) were STARTED earlier and are NOT finished",
    ],
    "bulk_import": [
        r"status: completed_with_errors, counts: {'processed': 20000, 'succeeded': 19860, 'failed': 140}\n",
        r"PART of it failed(?s:.*)rejected rows: \[14000, 14001, 14002\]\n",
    ],
    "long_build": [
        r"first turn: pending, job build-117\n",
        r"turn after 20 minutes: the model reads: 1 job\(s\) were STARTED .* NOT finished.* \[\"build-117\"\]\n",
        r"turn after 20 minutes: pending, job build-117\nscheduled run: the build succeeded\n",
        r"last turn: succeeded, job build-117\nthe image: shop:v2.4.0, 4 looks in 40 minutes",
    ],
    "langgraph_agent": [
        r"as_it_is:\n  died after 2 effects.*\n  3 effects wanted, 5 happened\n",
        r"step_00[12]  provision_database: success, sent 2x\n  step_00[12]  debit: success, sent 2x\n",
        r"step_003  send_webhook: success, sent 1x\n",
    ],
}
RESENT = r"session [0-9a-f-]{36}: step step_00\d was sent again under the same key"


@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_tells_its_story_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    """The example ends well, says what it promises, warns of nothing but resent steps, and leaves no file."""
    # LangGraph's own deprecations are not ours to keep at zero.
    warnings = [] if name == "langgraph_agent" else ["-W", "error"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *warnings, "-m", f"examples.{name}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == LAST_LINES[name]
    for said in SAYS[name]:
        assert re.search(said, done.stdout), done.stdout
    assert [line for line in done.stderr.splitlines() if not re.fullmatch(RESENT, line)] == []
    assert [path for path in tmp_path.rglob("*") if path != temporary] == []


def test_every_example_is_executed_and_listed() -> None:
    """Each file in `examples` but the demo, which has a test of its own, is run here and has a row in the README."""
    files = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"demo", "__init__"}
    listed = set(re.findall(r"^\| \[(\w+)\.py\]", (ROOT / "examples" / "README.md").read_text(), re.MULTILINE))
    assert files == set(LAST_LINES) == listed
