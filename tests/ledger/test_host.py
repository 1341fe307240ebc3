"""What a machine tells of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from agent_runtime.ledger import MachineClock, current_owner
from agent_runtime.ledger._host import is_dead, same_process


def test_this_process_lives() -> None:
    """A process does not take itself for dead."""
    me = current_owner("a")
    assert not is_dead(me, me)
    assert same_process(me, replace(me, token="b"))
    assert not same_process(me, replace(me, pid=me.pid + 1))


def test_a_process_that_ended_is_dead_before_and_after_it_was_waited_for() -> None:
    """A zombie runs no code any more, and neither does what is gone."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    me = current_owner("a")
    gone = replace(me, pid=child.pid, process_started="")
    assert is_dead(gone, me)
    child.wait()
    child.stdout.close()
    assert is_dead(gone, me)


def test_a_senseless_process_id_is_not_signalled() -> None:
    """Ids that mean groups or everybody are nobody's."""
    me = current_owner("a")
    assert not is_dead(replace(me, pid=0), me)
    assert not is_dead(replace(me, pid=-1), me)


def test_the_boot_clock_goes_forward() -> None:
    """The boot-time clock never goes back."""
    clock = MachineClock()
    assert clock.boottime() <= clock.boottime()
