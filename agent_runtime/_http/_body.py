"""An answer's body as it comes in: bounded, decoded here, and honest about whether it came whole."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from agent_runtime._model import BodyState

if TYPE_CHECKING:
    from agent_runtime._model import Answer

_GZIP = frozenset({"gzip", "x-gzip"})
_MAGIC = b"\x1f\x8b"


class Body:
    """Collects the raw bytes of one answer.

    httpx takes a gzip stream that was cut, or that lacks its trailer, for whole; so the raw bytes are decoded here,
    where the decoder is asked whether it saw the end. It also never inflates beyond the limit.
    """

    def __init__(self, head: Answer, *, method: str, limit: int, ends_with_connection: bool = False) -> None:
        self._limit = limit
        self._data = bytearray()
        self._raw_size = 0
        # Without a length or chunks the body ends with the connection, which a cut does as well.
        self._open_ended = ends_with_connection
        self._framed = head.header("content-length") is not None or head.header("transfer-encoding") is not None
        self._bodiless = method == "HEAD" or head.status in {204, 304} or head.status < 200
        self._inflate = _inflater(head)
        self.state = BodyState.WHOLE

    @property
    def data(self) -> bytes:
        """What is kept: at most the limit."""
        return bytes(self._data[: self._limit])

    def feed(self, raw: bytes) -> bool:
        """Take raw bytes; return whether more are wanted."""
        self._raw_size += len(raw)
        room = self._limit + 1 - len(self._data)
        if isinstance(self._inflate, _Inflate):
            try:
                self._inflate.feed(raw, into=self._data, limit=self._limit + 1)
            except zlib.error:
                self.state = BodyState.UNDECODABLE
                if not self._data:
                    self._data += raw[:room]  # often plain text under a wrong label
                return False
        else:
            self._data += raw[:room]
        # The raw size too: empty gzip members can come for ever without giving a byte.
        if len(self._data) > self._limit or self._raw_size > self._limit + 1024:
            self.state = BodyState.OVERSIZED
            return False
        return True

    def take(self, content: bytes) -> None:
        """Take a body that somebody else (a hook, a mock transport) has read and decoded."""
        self._data += content[: self._limit + 1]
        if len(content) > self._limit:
            self.state = BodyState.OVERSIZED

    def end(self) -> None:
        """Say that the transport saw the body's end."""
        if self._bodiless or self.state is not BodyState.WHOLE:
            return
        if self._open_ended and not self._framed and not _tells_its_end(self._data):
            self.state = BodyState.CUT
        elif self._raw_size == 0:
            if self._inflate is not None and not self._framed:
                self.state = BodyState.CUT
        elif isinstance(self._inflate, str):
            self.state = BodyState.UNDECODABLE
        elif self._inflate is not None and not self._inflate.ended:
            self.state = BodyState.CUT

    def cut(self) -> None:
        """Say that the connection or the deadline ended before the body."""
        if self.state is BodyState.WHOLE:
            self.state = BodyState.CUT


def _tells_its_end(data: bytearray) -> bool:
    """Whether text that ends with the connection shows by itself that it is whole, as JSON but for numbers does."""
    last = data.rstrip()[-1:]
    return bool(last) and not last.isdigit()


class _Inflate:
    """Decodes gzip (also several members) or deflate (also without its zlib wrapper), bounded."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding in _GZIP
        self._bits = 31 if self._gzip else 15
        self._decoder = zlib.decompressobj(self._bits)
        self._fresh = True
        self._rest = b""  # bytes after an end: another member, or padding

    @property
    def ended(self) -> bool:
        return self._decoder.eof and not self._rest

    def feed(self, raw: bytes, *, into: bytearray, limit: int) -> None:
        """Append decoded bytes until there are as many as the limit.

        Raises:
            zlib.error: these bytes are not of the encoding; what came before them is appended.
        """
        pending = self._rest + raw
        self._rest = b""
        while pending and len(into) < limit:
            if self._decoder.eof:
                pending = pending.lstrip(b"\0")
                if len(pending) < len(_MAGIC):
                    self._rest = pending
                    break
                if not self._gzip or not pending.startswith(_MAGIC):
                    raise zlib.error("bytes after the end")
                self._decoder = zlib.decompressobj(self._bits)
            into += self._step(pending, limit - len(into))
            pending = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail

    def _step(self, pending: bytes, room: int) -> bytes:
        fresh, self._fresh = self._fresh, False
        try:
            return self._decoder.decompress(pending, room)
        except zlib.error:
            if self._gzip or not fresh:
                raise
            # "deflate" means zlib, but some servers send it bare (RFC 9110 section 8.4.1.2).
            self._decoder = zlib.decompressobj(-15)
            return self._decoder.decompress(pending, room)


def _inflater(head: Answer) -> _Inflate | str | None:
    """Return a decoder, None for plain bodies, or the name of what cannot be undone here."""
    listed = ",".join(head.header_list("content-encoding")).lower().split(",")
    encodings = [name for name in (part.strip(" \t") for part in listed) if name not in {"", "identity"}]
    if not encodings:
        return None
    if len(encodings) == 1 and (encodings[0] in _GZIP or encodings[0] == "deflate"):
        return _Inflate(encodings[0])
    return ",".join(encodings)
