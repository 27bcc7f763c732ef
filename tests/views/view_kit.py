"""Runs recorded event by event, and their pages read by a parser."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser

from codepilot.core.artifacts import (
    ArtifactRef,
    ArtifactType,
    Gate,
    PatchCandidate,
    PolicyCheck,
    Review,
    TestResult,
    TestSummary,
)
from codepilot.core.contract import Contract
from codepilot.core.events import (
    BaselineRecorded,
    BasePinned,
    BundleWritten,
    Event,
    EventDraft,
    EventType,
    ModelAsked,
    NetworkRefused,
    PatchProposed,
    ProofRecorded,
    RunBlocked,
    RunFinished,
    SandboxChosen,
    State,
    StepFailed,
    StepQueued,
    StepStarted,
    StepSucceeded,
    TaskSpecRecorded,
    TurnStarted,
    Usage,
    Verdict,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run, replay
from codepilot.core.task import Goal, TaskSpec
from codepilot.telemetry import Clean, redact
from codepilot.views import bundle_page

DIFF = """\
diff --git a/agenda/spans.py b/agenda/spans.py
index 0dc98f8..ade45ad 100644
--- a/agenda/spans.py
+++ b/agenda/spans.py
@@ -45,4 +45,4 @@ def gaps(spans, within):
             break
         if span.start > cursor:
-        cursor = span.end
+        cursor = max(cursor, span.end)
     if cursor < within.end:
"""
TEST = "tests/test_book.py::BookTest::test_shared_bookings"


class Recorded:
    """The events of one run, with a clock of its own."""

    def __init__(self, goal: str = "Free slots must not overlap", repo: str = "/home/ana/agenda", **task: object):
        self.now = 1_790_000_000_000_000
        self.events: list[Event] = []
        self.step: str | None = None
        spec = TaskSpec(task_id="t-1", goal=Goal(natural=goal), repo=repo, **task)  # type: ignore[arg-type]
        self.add(TaskSpecRecorded(task=spec))

    def add(self, data: Contract, kind: EventType | None = None, seconds: float = 0.0) -> None:
        self.now += int(seconds * 1e6) + 1000
        name = "".join(f"_{char.lower()}" if char.isupper() else char for char in type(data).__name__)[1:]
        draft = EventDraft(type=kind or EventType(name), data=data, step_id=self.step, attempt=1)
        seq = len(self.events) + 1
        self.events.append(Event.placed(draft, event_id=f"e-{seq}", seq=seq, run_id="r-1", at=self.now))

    def begin(self, state: State) -> None:
        self.step = f"s-{state}-{len(self.events)}"
        self.add(StepQueued(state=state))
        self.add(StepStarted(worker="w", fence=1))

    def end(self, state: State, seconds: float = 1.0, note: str = "") -> None:
        self.add(StepSucceeded(state=state, note=note), seconds=seconds)

    @property
    def run(self) -> Run:
        return replay(self.events)

    def page(self, clean: Clean = redact) -> str:
        return bundle_page(self.run, self.events, clean)


def proposed(diff: str = DIFF, why: str = "The cursor must not move back.", path: str = "agenda/spans.py") -> Contract:
    patch = PatchCandidate(diff=diff, touched_files=(path,), rationale=why)
    ref = ArtifactRef(type=ArtifactType.PATCH, sha256="0" * 64, size_bytes=1)
    return PatchProposed(patch=patch, diff=ref, tree="t", snapshot="s")


def judged(*, passed: bool = True, test: str = TEST, evidence: str = "") -> Contract:
    after = TestSummary(passed=26) if passed else TestSummary(passed=25, failed=(test,))
    after_text = "1 pass" if passed else "0 pass"
    gate = Gate(name="fail_to_pass", before="1 fail", after=after_text, ok=passed, evidence=evidence or test)
    return TestResult(
        passed=passed,
        cmd=("python", "-m", "pytest"),
        exit_code=0 if passed else 1,
        failed_tests_before=(test,),
        failed_tests_after=() if passed else (test,),
        summary=after,
        suite="full",
        gates=(gate,),
    )


REASON = "the tests notice 33 of 40 mutants of the changed code"


def reported(
    verdict: Verdict | None = "confirmed",
    *,
    text: str = "",
    model: str | None = None,
    diff: str = DIFF,
    level: str = "bubblewrap",
    until: State | None = None,
) -> Recorded:
    """A run up to its end. `text` is added to everything that a repository, an agent or a person writes."""
    run = Recorded(f"Free slots must not overlap{text}", f"/home/ana/agenda{text}", constraints=(text,) if text else ())
    run.begin(State.INIT)
    run.add(BasePinned(repo_id="x", commit="4f2c1e9" + "0" * 33, commit_tree="t0", tree="t1"))
    run.add(SandboxChosen(level=level))
    before = TestSummary(passed=23, failed=(TEST + text, f"tests/test_b.py::other{text}"))
    run.add(BaselineRecorded(targets=(TEST + text,), signature="s", before=before, suite="full"))
    run.end(State.INIT, 1.4)
    if until is State.INIT:
        return run
    run.begin(State.IMPLEMENT)
    if model:
        usage = Usage(turns=1, tokens=1200, cost_usd=0.0123, input_tokens=1000, output_tokens=200)
        run.add(ModelAsked(model=model + text, estimate=usage))
        run.add(TurnStarted(turn=1, action={}, usage=usage))
    if text:
        run.add(NetworkRefused(host=text, why="policy"))
    run.add(proposed(diff, f"The cursor must not move back.{text}", f"agenda/spans.py{text}"), seconds=2)
    run.end(State.IMPLEMENT)
    run.begin(State.TEST)
    run.add(judged(passed=verdict is not None, test=TEST + text, evidence=TEST + text), EventType.TESTS_JUDGED)
    if verdict is None:
        failure = Failure(kind=FailureKind.REPEATED_FAILURE, message=f"The same failure came three times.{text}")
        run.add(StepFailed(state=State.TEST, failure=failure), seconds=1)
        run.add(RunFinished(state=State.FAILED, failure=failure))
        return run
    run.end(State.TEST)
    run.begin(State.REVIEW)
    check = PolicyCheck(name="patch_within_size_limit", ok=True, evidence=f"2 of 300 lines{text}")
    run.add(Review(verdict="APPROVE", patch_loc=2, policy_checks=(check,)), EventType.REVIEW_RECORDED)
    run.end(State.REVIEW)
    run.begin(State.FINALIZE)
    strong = PolicyCheck(name="tests_are_strong", ok=verdict == "confirmed", evidence=REASON + text)
    reason = REASON if verdict == "confirmed" else f"too little could be varied{text}"
    run.add(
        ProofRecorded(
            ok=True,
            verdict=verdict,
            confidence=0.79,
            checks=(strong,),
            after=TestSummary(passed=26),
            suite="full",
            reason=reason,
        )
    )
    run.add(BundleWritten(path="/b", sha256="a" * 64))
    run.end(State.FINALIZE)
    run.add(RunFinished(state=State.DONE))
    return run


def blocked() -> Recorded:
    run = reported(until=State.INIT)
    run.begin(State.IMPLEMENT)
    run.add(RunBlocked(failure=Failure(kind=FailureKind.MODEL_AUTH, message="The key is not accepted.")))
    return run


# Reading --------------------------------------------------------------------------------------------

VOID = {"meta", "rect", "circle", "path", "br", "col"}


@dataclass
class Page(HTMLParser):
    """The elements and the text of a page."""

    source: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    style: str = ""
    title: str = ""
    unclosed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.unclosed.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed and self.unclosed.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        inside = self.unclosed[-1] if self.unclosed else ""
        if inside == "style":
            self.style += data
        elif inside == "title":
            self.title += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    def named(self, *tags: str) -> Iterable[dict[str, str]]:
        return (attributes for tag, attributes in self.elements if tag in tags)
