"""How each provider writes its answers on the wire: streamed as events, or whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from model_answers import Answer, Call, Cut, Garbage, StreamError, TextReply, Tokens

PIECE = 7
"""How many characters come at once, so that words and JSON arrive in fragments."""
_numbers = itertools.count(1)


def usual_error(api: str, status: int) -> dict[str, Any]:
    kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error", 500: "api_error"}
    return {"type": "error", "error": {"type": kinds.get(status, "error"), "message": f"scripted {status} of {api}"}}


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _sse(data: Mapping[str, Any] | str, name: str | None = None) -> str:
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def _anthropic(model: str, answer: Answer) -> Iterator[str | float | None]:
    """Events, pauses in seconds, and None where the connection breaks."""

    def event(kind: str, **fields: Any) -> str:
        return _sse({"type": kind, **fields}, kind)

    tokens = getattr(answer, "tokens", None) or Tokens()
    usage = {
        "input_tokens": tokens.input,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": tokens.written,
        "output_tokens": 1,
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    yield event("ping")
    if isinstance(answer, Garbage):
        yield _sse(answer.data, "content_block_start")
        return
    if isinstance(answer, StreamError):
        yield event("error", error={"type": answer.type, "message": answer.message})
        return
    assert isinstance(answer, TextReply | Call | Cut)
    index = 0
    if answer.text:
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in _pieces(answer.text):
            yield getattr(answer, "pause_sec", 0.0)
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        index = 1
    if isinstance(answer, Cut):
        if not answer.politely:
            yield None
        return
    if answer.text:
        yield event("content_block_stop", index=0)
    if isinstance(answer, Call):
        block = {"type": "tool_use", "id": f"toolu_{next(_numbers)}", "name": answer.name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        for piece in _pieces(_arguments(answer)):
            yield answer.pause_sec
            yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        yield event("content_block_stop", index=index)
    stops = {"end": "end_turn", "length": "max_tokens"}
    delta = {"stop_reason": stops.get(answer.stop, answer.stop), "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": tokens.output})
    yield event("message_stop")


def _openai(model: str, answer: Answer) -> Iterator[str | float | None]:
    """Events, pauses in seconds, and None where the connection breaks."""

    def event(delta: Mapping[str, Any] | None, finish: str | None = None, **fields: Any) -> str:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        made = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model}
        return _sse({**made, "choices": choices, **fields})

    tokens = getattr(answer, "tokens", Tokens())
    yield event({"role": "assistant", "content": ""})
    if isinstance(answer, Garbage):
        yield _sse(answer.data)
        return
    if isinstance(answer, StreamError):
        yield _sse({"error": {"type": answer.type, "message": answer.message}})
        return
    assert isinstance(answer, TextReply | Call | Cut)
    sentence = "refusal" if getattr(answer, "stop", "") == "refusal" else "content"
    for piece in _pieces(answer.text):
        yield getattr(answer, "pause_sec", 0.0)
        yield event({sentence: piece})
    if isinstance(answer, Cut):
        if not answer.politely:
            yield None
        return
    if isinstance(answer, Call):
        named = {"id": f"call_{next(_numbers)}", "type": "function", "function": {"name": answer.name, "arguments": ""}}
        yield event({"tool_calls": [{"index": 0, **named}]})
        for piece in _pieces(_arguments(answer)):
            yield answer.pause_sec
            yield event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    stops = {"end": "stop", "refusal": "stop", "tool_use": "tool_calls"}
    yield event({}, stops.get(answer.stop, answer.stop))
    if tokens is None:
        return
    taken_in = tokens.input + tokens.cached + tokens.written
    usage = {
        "prompt_tokens": taken_in,
        "completion_tokens": tokens.output,
        "total_tokens": taken_in + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }
    yield event(None, usage=usage)
    yield _sse("[DONE]")


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _responses(model: str, answer: Answer) -> Iterator[str | float | None]:
    """OpenAI's Responses API."""
    numbers = itertools.count()

    def event(kind: str, **fields: Any) -> str:
        return _sse({"type": kind, "sequence_number": next(numbers), **fields}, kind)

    tokens = getattr(answer, "tokens", None) or Tokens()
    response = {"id": f"resp_{next(_numbers)}", "object": "response", "created_at": 0, "model": model, "output": []}
    yield event("response.created", response={**response, "status": "in_progress"})
    if isinstance(answer, Garbage):
        yield _sse(answer.data)
        return
    if isinstance(answer, StreamError):
        error = {"code": answer.type, "message": answer.message}
        yield event("response.failed", response={**response, "status": "failed", "error": error})
        return
    assert isinstance(answer, TextReply | Call | Cut)
    item, kind, text = _item(answer)
    hidden = {"output_text": {"content": []}, "function_call_arguments": {"arguments": ""}}.get(kind, {"input": ""})
    yield event("response.output_item.added", output_index=0, item={**item, **hidden, "status": "in_progress"})
    where = {"item_id": item["id"], "output_index": 0}
    for piece in _pieces(text):
        yield getattr(answer, "pause_sec", 0.0)
        yield event(f"response.{kind}.delta", **where, content_index=0, delta=piece)
    if isinstance(answer, Cut):
        if not answer.politely:
            yield None
        return
    yield event("response.output_item.done", output_index=0, item=item)
    whole = {**response, "status": "completed", "output": [item], "usage": _responses_usage(tokens)}
    yield event("response.completed", response=whole)


def _item(answer: TextReply | Call | Cut) -> tuple[dict[str, Any], str, str]:
    """The one item of a response, the name of its events, and what they carry in pieces."""
    number = next(_numbers)
    if not isinstance(answer, Call):
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
        return {**item, "status": "completed"}, "output_text", answer.text
    arguments = _arguments(answer)
    named = {"call_id": f"call_{number}", "name": answer.name, "status": "completed"}
    if answer.custom:
        item = {"type": "custom_tool_call", "id": f"ctc_{number}", **named, "input": arguments}
        return item, "custom_tool_call_input", arguments
    item = {"type": "function_call", "id": f"fc_{number}", **named, "arguments": arguments}
    return item, "function_call_arguments", arguments


def _responses_usage(tokens: Tokens) -> dict[str, Any]:
    taken_in = tokens.input + tokens.cached + tokens.written
    return {
        "input_tokens": taken_in,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": taken_in + tokens.output,
    }


def _gemini(model: str, answer: Answer) -> Iterator[str | float | None]:
    """Gemini's streamGenerateContent, as events."""
    if isinstance(answer, Garbage):
        yield _sse(answer.data)
        return
    if isinstance(answer, StreamError):
        yield _sse({"error": {"code": 503, "message": answer.message, "status": "UNAVAILABLE"}})
        return
    assert isinstance(answer, TextReply | Call | Cut)
    for piece in _pieces(answer.text):
        yield getattr(answer, "pause_sec", 0.0)
        yield _sse(_gemini_reply(model, [{"text": piece}], None, None))
    if isinstance(answer, Cut):
        if not answer.politely:
            yield None
        return
    yield _sse(_gemini_reply(model, _gemini_call(answer), "STOP", answer.tokens))


def _gemini_call(answer: TextReply | Call) -> list[dict[str, Any]]:
    if not isinstance(answer, Call):
        return []
    call = {"id": f"call{next(_numbers)}", "name": answer.name, "args": answer.arguments}
    return [{"functionCall": call}]


def _gemini_reply(model: str, parts: list[dict[str, Any]], finish: str | None, tokens: Tokens | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts or [{"text": ""}]}, "index": 0}
    reply: dict[str, Any] = {"candidates": [candidate], "modelVersion": model, "responseId": "resp"}
    if finish:
        candidate["finishReason"] = finish
    if tokens is not None:
        taken_in = tokens.input + tokens.cached + tokens.written
        reply["usageMetadata"] = {
            "promptTokenCount": taken_in,
            "cachedContentTokenCount": tokens.cached,
            "candidatesTokenCount": tokens.output,
            "totalTokenCount": taken_in + tokens.output,
        }
    return reply


WIRES: dict[str, Callable[[str, Answer], Iterator[str | float | None]]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "responses": _responses,
    "gemini": _gemini,
}


def whole(api: str, model: str, answer: TextReply | Call) -> dict[str, Any]:
    """An answer that is not streamed."""
    tokens = answer.tokens or Tokens()
    taken_in = tokens.input + tokens.cached + tokens.written
    match api:
        case "anthropic":
            content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
            if isinstance(answer, Call):
                called = {"name": answer.name, "input": answer.arguments}
                content.append({"type": "tool_use", "id": f"toolu_{next(_numbers)}", **called})
            usage = {
                "input_tokens": tokens.input,
                "cache_read_input_tokens": tokens.cached,
                "cache_creation_input_tokens": tokens.written,
                "output_tokens": tokens.output,
            }
            stop = "tool_use" if isinstance(answer, Call) else "end_turn"
            made = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content}
            return {**made, "stop_reason": stop, "stop_sequence": None, "usage": usage}
        case "responses":
            made = {"id": "resp_1", "object": "response", "created_at": 0, "model": model, "status": "completed"}
            return {**made, "output": [_item(answer)[0]], "usage": _responses_usage(tokens)}
        case "gemini":
            text = [{"text": answer.text}] if answer.text else []
            return _gemini_reply(model, [*text, *_gemini_call(answer)], "STOP", answer.tokens)
        case _:
            message: dict[str, Any] = {"role": "assistant", "content": answer.text}
            if isinstance(answer, Call):
                function = {"name": answer.name, "arguments": _arguments(answer)}
                message["tool_calls"] = [{"id": f"call_{next(_numbers)}", "type": "function", "function": function}]
            finish = "tool_calls" if isinstance(answer, Call) else "stop"
            counted = {
                "prompt_tokens": taken_in,
                "completion_tokens": tokens.output,
                "prompt_tokens_details": {"cached_tokens": tokens.cached},
            }
            choices = [{"index": 0, "message": message, "finish_reason": finish}]
            return {"id": "c", "object": "chat.completion", "created": 0, "model": model, "choices": choices} | (
                {"usage": {**counted, "total_tokens": taken_in + tokens.output}} if answer.tokens else {}
            )
