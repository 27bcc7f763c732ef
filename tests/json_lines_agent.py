"""A program that speaks our JSON lines: it does the steps of its script, a JSON file, in order.

    python3 json_lines_agent.py script.json   (or the steps themselves)

A step is a list: `["write", PATH, TEXT]`, `["run", COMMAND]`, `["ask", OPERATION, SUBJECT]` (the next step is left out
if it is refused), `["say", TEXT]`, `["line", OBJECT]`, `["raw", TEXT]`, `["turn"]` (end the turn, wait for a message),
`["receive"]` (wait for a message within the turn), `["sleep", SECONDS]`, `["exit", CODE]`.
It acknowledges what wants to be acknowledged, and repeats in words what it received.
"""

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

received: queue.Queue[dict[str, Any]] = queue.Queue()
answers: queue.Queue[dict[str, Any]] = queue.Queue()
interrupted = threading.Event()


def send(kind: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
    sys.stdout.flush()


def listen() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message["type"]:
            case "permission_answer":
                answers.put(message)
            case "interrupt":
                interrupted.set()
            case "pause_request":
                send("pause_ack", checkpoint_id=message["checkpoint_id"], status="paused")
            case "resume":
                pass
            case "checkpoint_violation":
                action = f"will move {message['violations'][0]['file']}"
                send("violation_ack", checkpoint_id=message["checkpoint_id"], corrective_action=action)
                received.put(message)
            case _:
                if message.get("requires_acknowledgment"):
                    send("ack", id=message["id"], response="understood")
                received.put(message)


def receive() -> None:
    message = received.get()
    send("text", text=f"I received: {message['content']}")


def run(number: int, step: list[Any]) -> bool:
    """False if the next step is to be left out."""
    match step:
        case ["write", path, text]:
            send("tool_call", id=f"c{number}", tool="write", subject=path)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text)
            send("tool_result", id=f"c{number}", ok=True)
        case ["run", command]:
            send("tool_call", id=f"c{number}", tool="run", subject=command)
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
            send("tool_result", id=f"c{number}", ok=done.returncode == 0, text=done.stdout + done.stderr)
        case ["ask", operation, subject]:
            send("permission_request", id=f"p{number}", operation=operation, subject=subject)
            answer = answers.get()
            if not answer["allow"]:
                send("tool_result", id=f"p{number}", denied=True, text=answer["message"])
            return bool(answer["allow"])
        case ["say", text]:
            send("text", text=text)
        case ["line", fields]:
            send(**fields)
        case ["raw", text]:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        case ["turn"]:
            send("turn_ended")
            receive()
        case ["receive"]:
            receive()
        case ["sleep", seconds]:
            until = time.monotonic() + seconds
            while time.monotonic() < until and not interrupted.wait(0.01):
                pass
        case ["exit", code]:
            sys.exit(code)
        case _:
            raise ValueError(step)
    return True


def main() -> None:
    start = received.get()
    assert start["type"] == "start"
    send("session", id=start["session"] or "session-1", model=start["model"])
    steps = json.loads(sys.argv[1] if sys.argv[1].startswith("[") else Path(sys.argv[1]).read_text())
    wanted = True
    for number, step in enumerate(steps):
        wanted = run(number, step) if wanted else True
    send("finished", text=f"Done in {start['workspace']}.")


if __name__ == "__main__":
    threading.Thread(target=listen, daemon=True).start()
    main()
