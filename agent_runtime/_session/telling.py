"""Open matters, told by a registered tool: each in a session of its own, so that none stands in another's way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_runtime._model import Outcome
from agent_runtime._session.shared import logger
from agent_runtime.errors import StepPending

if TYPE_CHECKING:
    from agent_runtime._core.attention import Attention
    from agent_runtime._session.settings import Settings

AT = "matter"
FAILED = "on_attention failed; what it was told is told again"


def notify_quietly(settings: Settings) -> None:
    """Let ``on_attention`` hear of open matters; one that fails is logged with its trace, and told again later."""
    if settings.on_attention is None:
        return
    try:
        settings.notify()
    except Exception:  # noqa: BLE001  whoever lets it hear goes on either way
        logger.exception(FAILED)


async def notify_quietly_async(settings: Settings) -> None:
    """As `notify_quietly`."""
    if settings.on_attention is None:
        return
    try:
        await settings.notify()
    except Exception:  # noqa: BLE001  as above
        logger.exception(FAILED)


def alias_of(matter: Attention) -> str:
    """Return the alias of the session in which a matter is told: the same however often it is tried."""
    return f"attention:{matter.id}:{matter.kind}"


def tell_by_tool(runtime: Any, tool: Any, matter: Attention) -> None:
    """Call the tool with a matter; raises unless it took it, and then the matter is told again, under the same key."""
    with runtime.open(alias_of(matter)) as session:
        outcome = session.try_call(tool, matter.told(), at=AT)
    check(outcome, matter)


async def tell_by_tool_async(runtime: Any, tool: Any, matter: Attention) -> None:
    """As `tell_by_tool`."""
    async with runtime.open(alias_of(matter)) as session:
        outcome = await session.try_call(tool, matter.told(), at=AT)
    check(outcome, matter)


def check(outcome: Outcome, matter: Attention) -> None:
    """Raise `StepPending` unless a telling is over, well or not: what failed is not told in the same words for ever."""
    if not outcome.done:
        msg = f"the matter {matter.kind} of operation {matter.id} could not be told yet ({outcome.status})"
        raise StepPending(msg, kind="parked", outcome=outcome, session_id=outcome.session_id, step=outcome.step)
