"""What a call used, read from its reply while that passes through: streamed or whole, in memory that is bounded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from codepilot.core.events import Usage
from codepilot.models.gateway.routes import Api
from codepilot.models.prices import BYTES_PER_TOKEN

MOST_BYTES = 16 << 20
"""An event or a whole reply beyond this is not read; the call is charged its estimate."""
_COUNTED = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass(frozen=True)
class Seen:
    """Tokens of a reply. `written` of the input tokens went into the provider's cache."""

    input: int
    output: int
    cached: int = 0
    written: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            turns=1,
            tokens=self.input + self.output,
            input_tokens=self.input,
            output_tokens=self.output,
            cached_tokens=min(self.cached, self.input),
        )


@dataclass
class UsageReader:
    """Fed with a reply's bytes as they come."""

    api: Api
    streamed: bool
    asked: int
    """The estimated input tokens, for replies that do not count."""
    _rest: bytearray = field(default_factory=bytearray)
    _lost: bool = False
    _counts: dict[str, int] = field(default_factory=dict)
    _written_bytes: int = 0
    begun: bool = False
    """True once the model has begun to reply: from then on the call costs money."""

    def feed(self, data: bytes) -> None:
        if not data:
            return
        self.begun = True
        if not self.streamed:
            self._keep(data)
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._keep(line)
            self._line()
        self._keep(rest)

    def end(self) -> None:
        """The reply is whole."""
        if self.streamed:
            self._line()
            return
        document, self._rest = (b"" if self._lost else bytes(self._rest)), bytearray()
        self._take(document)

    @property
    def seen(self) -> Seen:
        """What the reply counted; what it did not is estimated."""
        written = math.ceil(self._written_bytes / BYTES_PER_TOKEN)
        counted = self._counts
        output = max(counted.get("output_tokens", 0), 0 if self._final else written)
        cached, taken_in = counted.get("cache_read_input_tokens", 0), counted.get("cache_creation_input_tokens", 0)
        if "input_tokens" not in counted:
            return Seen(self.asked, output)
        return Seen(counted["input_tokens"], output, cached, taken_in)

    @property
    def counted(self) -> bool:
        """True if the provider has reported the whole usage."""
        return self._final

    @property
    def _final(self) -> bool:
        return self._counts.get("final", 0) > 0

    def _keep(self, data: bytes) -> None:
        if self._lost or len(self._rest) + len(data) > MOST_BYTES:
            self._lost = True
            self._rest.clear()
            return
        self._rest += data

    def _line(self) -> None:
        line, lost = bytes(self._rest).strip(), self._lost
        self._rest.clear()
        self._lost = False
        if self.api == "gemini" and not lost:
            self._take(line.removeprefix(b"data:").strip())
        elif line.startswith(b"data:") and not lost:
            self._take(line[5:].strip())

    def _take(self, text: bytes) -> None:
        if not text.startswith((b"{", b"[")):
            return
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return
        for one in document if isinstance(document, list) else [document]:
            if isinstance(one, dict):
                self._count(one)

    def _count(self, event: Mapping[str, Any]) -> None:
        match self.api:
            case "messages":
                self._messages(event)
            case "responses":
                self._responses(event)
            case "chat":
                self._chat(event)
            case "gemini":
                self._gemini(event)
        self._written_bytes += sum(len(text.encode("utf-8", "replace")) for text in _texts(self.api, event))

    def _messages(self, event: Mapping[str, Any]) -> None:
        """Counts are cumulative. The API's input tokens leave out what its cache held or took in."""
        usage = _object(event, "message", "usage") or _object(event, "usage")
        raw = {name: value for name in _COUNTED if (value := _number(usage, name)) is not None}
        cache = ("cache_read_input_tokens", "cache_creation_input_tokens")
        if "input_tokens" in raw:
            before = self._counts
            raw["input_tokens"] += sum(raw.get(name, before.get(name, 0)) for name in cache)
        self._counts.update(raw)
        if event.get("type") in ("message_delta", "message") and "output_tokens" in raw:
            self._counts["final"] = 1

    def _responses(self, event: Mapping[str, Any]) -> None:
        usage = _object(event, "response", "usage") or _object(event, "usage")
        self._set(
            _number(usage, "input_tokens"),
            _number(usage, "output_tokens"),
            _number(_object(usage, "input_tokens_details"), "cached_tokens"),
        )

    def _chat(self, event: Mapping[str, Any]) -> None:
        usage = _object(event, "usage")
        details = _object(usage, "prompt_tokens_details")
        asked, output = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
        self._set(asked or None, output, _number(details, "cached_tokens"))

    def _gemini(self, event: Mapping[str, Any]) -> None:
        usage = _object(event, "usageMetadata")
        asked = _number(usage, "promptTokenCount")
        if asked is None:
            return
        output = (_number(usage, "candidatesTokenCount") or 0) + (_number(usage, "thoughtsTokenCount") or 0)
        asked += _number(usage, "toolUsePromptTokenCount") or 0
        self._set(asked, output, _number(usage, "cachedContentTokenCount"))

    def _set(self, asked: int | None, output: int | None, cached: int | None) -> None:
        if asked is None or output is None:
            return
        self._counts.update(
            {"input_tokens": asked, "output_tokens": output, "cache_read_input_tokens": cached or 0, "final": 1}
        )


def _object(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found: Any = value
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _number(value: Mapping[str, Any], name: str) -> int | None:
    found = value.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _texts(api: Api, event: Mapping[str, Any]) -> Iterator[str]:
    """What the model wrote in one event of a stream, or in a whole reply."""
    found: list[Any] = []
    match api:
        case "messages":
            delta = _object(event, "delta")
            found = [delta.get(name) for name in ("text", "partial_json", "thinking")]
        case "responses":
            found = [event.get("delta")]
        case "chat":
            for choice in _objects(event, "choices"):
                delta = _object(choice, "delta") or _object(choice, "message")
                found += [delta.get("content"), delta.get("reasoning_content")]
                found += [_object(call, "function").get("arguments") for call in _objects(delta, "tool_calls")]
        case "gemini":
            for candidate in _objects(event, "candidates"):
                for part in _objects(_object(candidate, "content"), "parts"):
                    call = part.get("functionCall")
                    found += [part.get("text"), json.dumps(call) if call else None]
    return (text for text in found if isinstance(text, str))


def _objects(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = value.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
