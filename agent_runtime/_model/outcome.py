"""What a call delivers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from agent_runtime._model.words import Sentence, for_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_runtime._model.states import Effect, Reason, ResultState, State, Status

T = TypeVar("T")

Source = Literal["sent", "ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Generic[T]):
    """The result of a step that succeeded.

    Attributes:
        value: decoded from the bytes that were recorded, so that live and replayed values are equal.
        key: the idempotency key it was sent under.
        step: the label, for example ``step_003``.
        source: ``sent`` if this process sent it, ``ledger`` if it was recorded before.
        server_replayed: the tool said that its answer is the stored one for the key.
        attempts: requests made in all.
        partial: the tool finished with errors in it.
    """

    value: T
    key: str
    step: str
    source: Source
    server_replayed: bool = False
    attempts: int = 1
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known of a step: one of eight words, and what stands behind it.

    Attributes:
        status: the word.
        state, reason, effect, result_state: what the ledger says; None where no operation was made.
        value: decoded result; None unless succeeded or completed with errors.
        raw: bytes of the result as they came.
        error: what the tool said, as plain JSON values; with ``seen_by`` it is what was seen on our side: ``transport``
            (no answer came; ``target`` is where none came from) or ``authorisation`` (there is no token).
        kind: of a pending one: ``job``, ``parked``, ``approval`` or ``auth``.
        operation_id: what ``runtime.decide`` takes.
        blocking: of one that was not started, the label of the unsettled step in the way.
        source: ``sent`` if this process sent it, ``ledger`` if not; None where nothing was started.
        decide_only: of an unknown one: no call, `settle` or resume can settle it any more, only ``runtime.decide``.
        since: of an unsettled outcome that is replayed because the code went on after it: how the step ended since.
        job_id, status_url, started_at, progress: of a job; UTC epoch seconds, per cent.
        counts, errors_url: of a job done in part; ``session.errors`` fetches what is behind the URL.
        message: why it stands so, in English.
        why, words: the same by the names of its sentences, and sentences for a model that replace the English ones.
    """

    status: Status
    step: str
    tool: str
    session_id: str
    key: str | None = None
    operation_id: str | None = None
    state: State | None = None
    reason: Reason | str | None = None
    effect: Effect | None = None
    result_state: ResultState | None = None
    value: Any = None
    raw: bytes | None = field(default=None, repr=False)
    error: dict[str, Any] | None = None
    kind: str | None = None
    source: Source | None = None
    server_replayed: bool = False
    attempts: int = 0
    resume_at: float | None = None
    http_status: int | None = None
    job_id: str | None = None
    status_url: str | None = None
    blocking: str | None = None
    decide_only: bool = False
    since: State | None = None
    started_at: float | None = None
    progress: float | None = None
    counts: Mapping[str, Any] | None = None
    errors_url: str | None = None
    message: str = ""
    why: tuple[Sentence, ...] = field(default=(), repr=False)
    words: Mapping[str, str] | None = field(default=None, repr=False, compare=False)

    @property
    def done(self) -> bool:
        """Whether nothing more will happen by itself and the effect stands as far as the word says."""
        return self.status in {"succeeded", "completed_with_errors", "failed", "cancelled"}

    @property
    def ok(self) -> bool:
        """Whether the step succeeded whole, with a result that can be used."""
        return self.status == "succeeded" and self.result_state in {None, "ok"}

    def for_model(self, words: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the outcome in words for a model: plain JSON values, no secrets, the tool's own text marked.

        ``words``: sentences in place of the English ones, by the names in ``agent_runtime.WORDS``; else those that the
        runtime was given.
        """
        return for_model(self, words)
