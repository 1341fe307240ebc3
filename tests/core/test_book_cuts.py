"""What an interrupted call leaves: a position given back, a row found again, a branch that has strayed."""

from concurrent.futures import Future

import pytest

from agent_runtime import LedgerError, Tool, ToolContract
from agent_runtime._core.book import Book
from agent_runtime._core.reserving import reserve
from tests.core.world import LOST, PLAIN, fresh, json_answer, make_call, scripted, tool_of
from tests.core.world import call_of as call

OK = json_answer(200, {"balance": 1})
DEBIT = tool_of(PLAIN)
OTHER = Tool("credit", url="https://tools.test/tools/credit", contract=PLAIN)
READ = Tool("look", url="https://tools.test/look", contract=ToolContract(kind="read"))


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


def two_done():
    """A session with two calls that ended."""
    world = fresh(scripted(OK))
    desk = world.desk()
    for amount in (1, 2):
        make_call(world, desk, call(DEBIT, {"amount": amount}))
    return world


def test_a_placing_that_is_undone_leaves_the_branch_as_it_was():
    """The next call takes the same position, and what was not reached before is not reached."""
    world = two_done()
    desk = world.desk()
    mark = desk.book.mark("")
    desk.book.place(call(DEBIT, {"amount": 1}).ask())
    assert desk.book.reached == {"step_001"}
    desk.book.rewind(mark)
    assert desk.book.reached == set()
    assert desk.book.place(call(DEBIT, {"amount": 1}).ask()).label == "step_001"
    again = desk.book.mark("")
    desk.book.place(call(DEBIT, {"amount": 2}, at="m.0").ask())
    desk.book.rewind(again)
    assert not desk.book.is_crossed("", "me")
    assert desk.book.place(call(DEBIT, {"amount": 2}).ask()).label == "step_002"


def test_undoing_keeps_what_was_reached_before():
    """A position that was asked for once stays reached when a second placing of it is undone."""
    world = two_done()
    desk = world.desk()
    make_call(world, desk, call(DEBIT, {"amount": 1}, at="step"))
    mark = desk.book.mark("")
    place = desk.book.place(call(DEBIT, {"amount": 1}, at="step").ask())
    desk.book.rewind(mark)
    assert place.label in desk.book.reached


def test_a_call_cut_during_a_replay_stands_at_its_own_place_when_made_again():
    """It is no divergence at the next position; another call goes on to the next one."""
    world = two_done()
    for cut_again in (True, False):
        desk = world.desk()
        place = desk.book.place(call(DEBIT, {"amount": 1}).ask())
        desk.book.ended(place.label)
        desk.book.not_told(place.label)
        amount = 1 if cut_again else 2
        found = desk.book.place(call(DEBIT, {"amount": amount}).ask())
        assert (found.label, found.kind) == (f"step_00{amount}", "replay")


def test_a_refusal_cut_during_a_replay_is_found_by_its_request():
    """Positions without an operation are compared by what was asked."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    make_call(world, desk, call(DEBIT))
    make_call(world, desk, call(OTHER))
    again = world.desk()
    make_call(world, again, call(DEBIT))
    again.book.not_told("step_001")
    assert again.book.place(call(OTHER).ask()).label == "step_002"


def test_not_told_of_a_step_that_is_unknown_or_addressed_moves_nothing():
    """An address is asked for where it stands; a label without a row is nobody's."""
    world = fresh(scripted(OK))
    desk = world.desk()
    made = make_call(world, desk, call(DEBIT, at="m.0"))
    desk.book.not_told(made.step)
    desk.book.not_told("step_099")
    assert desk.book.place(call(DEBIT, {"amount": 7}).ask()).label == "step_002"


def test_a_strayed_branch_takes_no_new_write():
    """After another call than the recorded one, what is new is refused, what reads goes on, and so does an address."""
    world = two_done()
    desk = world.desk()
    first = make_call(world, desk, call(OTHER))
    strayed = make_call(world, desk, call(OTHER, {"amount": 3}))
    for _ in range(2):
        strayed = make_call(world, desk, call(OTHER, {"amount": 3}))
    assert (first.reason, strayed.reason, strayed.status) == ("diverged", "diverged", "not_started")
    assert "step_001" in strayed.message
    assert make_call(world, desk, call(READ, {})).status == "succeeded"
    assert make_call(world, desk, call(OTHER, {"amount": 4}, at="m.0")).status == "succeeded"
    assert make_call(world, desk, call(OTHER, {"amount": 4}, branch="b")).status == "succeeded"


def test_a_row_that_was_committed_while_its_call_was_cut_is_gone_on_with():
    """An equal call takes what stands there; another call, or a session that is gone, gets the ledger's refusal."""
    world = fresh(scripted(OK))
    stale, other, gone = world.desk(), world.desk(), world.desk()
    made = make_call(world, world.desk(), call(DEBIT))
    assert make_call(world, stale, call(DEBIT)).step == made.step
    assert len(world.sends) == 1
    with pytest.raises(LedgerError):
        make_call(world, other, call(OTHER))
    nothing = Future()
    nothing.set_result(None)
    world.ledger.load = lambda **_: nothing
    with pytest.raises(LedgerError):
        make_call(world, gone, call(DEBIT))


def test_the_count_of_a_value_that_was_not_given_is_taken_back_once():
    """The next value of the name has the same count; taking it back again changes nothing."""
    book = fresh(scripted(OK)).desk().book
    assert [book.next_value("", "clock"), book.next_value("", "clock")] == [1, 2]
    book.rewind_value("", "clock", 1)
    book.rewind_value("", "clock", 1)
    assert book.next_value("", "clock") == 2
    assert not book.busy


def test_a_position_that_is_given_back_twice_is_free_once():
    """The branch is not torn by it, and the next call stands at the same position."""
    book = fresh(scripted(OK)).desk().book
    place = book.place(call(DEBIT).ask())
    book.give_back(place)
    book.give_back(place)
    book.ended(place.label)
    found = book.place(call(DEBIT).ask())
    assert (found.label, found.kind) == (place.label, "new")


class CutShort(Book):
    """A book whose keeping of a row is cut short once."""

    cuts = 1

    def _put(self, step):
        self.cuts -= 1
        if self.cuts >= 0:
            raise Interrupted
        super()._put(step)


class CutTwice(CutShort):
    """A book that is cut short a second time, where it keeps the row after all."""

    cuts = 2


@pytest.mark.parametrize("book", [CutShort, CutTwice])
def test_rows_are_kept_whole_where_keeping_them_is_cut_short(book):
    """The book and the ledger say the same, also when Ctrl-C comes between the two."""
    world = fresh(scripted(OK))
    desk = world.desk()
    desk.book = book(world.ledger.loaded())
    asked = call(DEBIT)
    place = desk.book.place(asked.ask())
    with pytest.raises(Interrupted):
        world.run(reserve(desk, [(asked, place)]))
    assert desk.book.step("step_001") is not None
    assert set(world.ledger.operations) == set(desk.book.operations)
