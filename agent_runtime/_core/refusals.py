"""What follows when a tool refuses a token: one fresh one, or a person who has to bring new proof."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from agent_runtime._core.challenges import Challenge, challenge_of
from agent_runtime._core.effects import NoCredential
from agent_runtime._core.results import ascii_json
from agent_runtime._core.run import stop_for_auth
from agent_runtime._core.scrub import repeats
from agent_runtime._model import Answer

if TYPE_CHECKING:
    from agent_runtime._core.effects import Credential, Steps
    from agent_runtime._core.run import Run
    from agent_runtime._model import Change


def refused_token(run: Run, credential: Credential, answer: object, who: str) -> Steps[bool]:
    """Answer a refused token: True = a fresh token is to be tried; False = `Run.problem` says who is wanted.

    One renewal, then again; a second 401, or one that a person has to answer, ends the run. ``who`` refused it.
    """
    problem = problem_of(credential, answer, who)
    if problem is None and run.refreshed:
        message = f"{who} refused a fresh token as well; it wants another identity or right"
        problem = NoCredential("required", message)
    if problem is not None:
        yield from stop_for_auth(run, problem)
        return False
    run.rejected = credential.token_id
    return True


def problem_of(credential: Credential, answer: object, who: str) -> NoCredential | None:
    """Return what a person has to bring before a refused request can go through, or None if a fresh token may do."""
    challenge = challenge_of(answer) if isinstance(answer, Answer) else Challenge()
    if not challenge.wants_person:
        return None
    todo = credential.renewal or "let the user sign in again, with the claims that it names, and bring it"
    message = f"{who} wants new proof: {todo}"
    claims = None if repeats(challenge.claims, credential) else challenge.claims
    return NoCredential("required", message, error=challenge.error, claims=claims)


def with_granted_scope(change: Change, result: object, granted: str) -> Change:
    """Add what the token was granted to the error of a step that was refused for want of a scope."""
    if not granted or not isinstance(result, Answer) or result.status != 403 or not isinstance(change.error, bytes):
        return change
    if challenge_of(result).error != "insufficient_scope":
        return change
    told = json.loads(change.error) | {"granted_scope": granted}
    return dataclasses.replace(change, error=ascii_json(told))
