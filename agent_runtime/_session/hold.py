"""One claim of a session in this process: what its session object and branch views share."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.book import Book
from agent_runtime._core.canonical import canonical_json, digest
from agent_runtime._core.desk import Call, Desk
from agent_runtime._core.places import Place
from agent_runtime._core.reissue import can_be_issued_again
from agent_runtime._core.tokens import Subject
from agent_runtime._model import SessionState
from agent_runtime._model.naming import check_alias
from agent_runtime._session.settings import Settings
from agent_runtime.config._checks import flag
from agent_runtime.config.auth import check_can_be_sent
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from agent_runtime._model import SessionRecord
    from agent_runtime.config import SubjectToken
    from agent_runtime.ledger import Claim, Lease

HELD: Final[weakref.WeakValueDictionary[str, Hold]] = weakref.WeakValueDictionary()
"""Session objects of this process by the owner token of their lease: an idle one gives way to a new one."""


@dataclass(eq=False)
class Hold:
    """One claim of a session in this process; its session object and branch views share it. Strictly private."""

    settings: Settings
    lease: Lease | None
    desk: Desk
    state: SessionState
    alias: str | None
    after_unknown: str = "block"
    pid: int = field(default_factory=os.getpid)
    guard: threading.RLock = field(default_factory=threading.RLock)
    locks: dict[str, Any] = field(default_factory=dict)
    unstarted: dict[str, tuple[Call, Place]] = field(default_factory=dict)
    warned: int = 0
    finishes: bool = True
    closed: bool = False

    @property
    def busy(self) -> bool:
        """Whether a call is out."""
        return self.desk.book.busy

    @property
    def token(self) -> str | None:
        """The owner token of the lease."""
        return None if self.lease is None else self.lease.owner.token


def hold(
    settings: Settings,
    claim: Claim,
    actor: str | None = None,
    subject_token: SubjectToken | None = None,
    *,
    finish: bool = True,
    reissue_failed: bool = False,
) -> Hold:
    """Return the hold for a claim that was granted; raises `ConfigError` if it was opened for another actor."""
    loaded = claim.loaded
    assert loaded is not None
    record = loaded.session
    desk = Desk(
        book=Book(loaded),
        session_id=record.id,
        fence=record.fence if claim.lease is None else claim.lease.fence,
        body_limit=settings.body_limit,
        secret=settings.key_secret,
        words=settings.words,
        subject=subject_of(record, settings.actor, actor, subject_token),
    )
    if flag("reissue_failed", reissue_failed):
        desk.again = {operation.id for operation in loaded.operations if can_be_issued_again(operation)}
    made = Hold(
        settings=settings,
        lease=claim.lease,
        desk=desk,
        state=record.state,
        alias=record.alias,
        after_unknown=settings.after_unknown,
        finishes=finish,
    )
    if made.token is not None:
        HELD[made.token] = made
    return made


def subject_of(record: SessionRecord, default: str | None, actor: str | None, token: SubjectToken | None) -> Subject:
    """Return on whose behalf a session calls: the actor that it was made for, and the proof that was brought.

    Raises:
        ConfigError: a token without a name of its subject, or the name of another one. Nothing was sent.
    """
    named = actor if actor is not None else (default if token is not None else None)
    if record.actor is not None and named is not None and named != record.actor:
        msg = (
            f"session {record.id} acts for {record.actor!r}, not for {named!r}. Nothing was sent. Start one of its own"
        )
        raise ConfigError(msg, session_id=record.id)
    name = record.actor if record.actor is not None else (named if named is not None else default)
    if token is not None:
        check_subject_token(token, name)
    return Subject(name=name, token=token)


def check_subject_token(token: object, name: str | None) -> None:
    """Raise `ConfigError` unless a subject's token can be used."""
    if name is None:
        raise ConfigError(
            "subject_token= needs actor=: the name of whom the token is of, which stays the same when it is renewed. "
            "Nothing was sent"
        )
    if not (callable(token) or (isinstance(token, str) and token)):
        msg = f"subject_token must be a token or a function that returns one, not {type(token).__name__}"
        raise ConfigError(msg)
    if isinstance(token, str):
        check_can_be_sent("subject_token", token)


def input_digest(value: Any) -> str | None:
    """Return the digest of a session's input, or None where none was given."""
    return None if value is None else digest(canonical_json(value))


def check_session_alias(alias: object) -> str:
    """Return an alias, or raise `ConfigError`."""
    text = check_text("a session's alias", alias)
    check_alias(text)
    return text


def check_text(name: str, value: object) -> str:
    """Return a value that is text, or raise `ConfigError`."""
    if not isinstance(value, str):
        msg = f"{name} must be text, not {type(value).__name__}; nothing was written or sent"
        raise ConfigError(msg)
    return value


def dropped(hold: Hold, place: Place) -> None:
    """Note that a call is gone; if it never began, its place waits to be recorded as not started."""
    with hold.guard:
        if place.label in hold.unstarted and hold.unstarted[place.label][1] is place:
            hold.desk.book.leave(place.branch, place.label)
            hold.desk.book.ended(place.label)
