"""Artifacts on a server that is overloaded, slow, cut off or killed: retried, then reported, and never by halves."""

from __future__ import annotations

import io
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from artifact_kit import Kept, kept_objects
from faulty_proxy import Fault, FaultyProxy

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import new_id, open_artifacts
from codepilot.store.artifacts import Stored
from codepilot.store.objects import TIMEOUT_SEC, Bucket, ObjectArtifacts
from servers import S3Server, s3_server

HASTY_SEC = 1.0
LARGE = random.Random(1).randbytes(20 << 20)
Proxied = Callable[..., tuple[Kept, FaultyProxy]]


@pytest.fixture
def proxied(s3: S3Server) -> Iterator[Proxied]:
    """An artifact store that is reached through a proxy with this plan."""
    opened = []
    host, port = s3.endpoint.removeprefix("http://").split(":")

    def reach(*plan: Fault, always: Fault | None = None, timeout_sec: float = TIMEOUT_SEC) -> tuple[Kept, FaultyProxy]:
        running = FaultyProxy((host, int(port)), list(plan), always).running()
        proxy = running.__enter__()
        opened.append(running)
        kept = kept_objects(
            s3.bucket, f"tests/{new_id('a')}", {**s3.environ, "AWS_ENDPOINT_URL": proxy.endpoint}, timeout_sec
        )
        straight = kept_objects(s3.bucket, kept.url.partition(f"{s3.bucket}/")[2], s3.environ)
        kept.raw = straight.raw
        return kept, proxy

    yield reach
    for running in opened:
        running.__exit__(None, None, None)


def reported(failing: Callable[[], object], kept: Kept) -> CodePilotError:
    """The typed failure; it names the endpoint and the bucket, and nothing that opens them."""
    with pytest.raises(CodePilotError) as caught:
        failing()
    assert caught.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE
    text = f"{caught.value} {caught.value.failure} {caught.value.__cause__} {caught.value.failure.details}"
    assert kept.environ["AWS_ENDPOINT_URL"] in text and "s3://codepilot/" in text
    assert "not-a-secret" not in text and "tester" not in text and "Signature=" not in text
    return caught.value


@pytest.mark.parametrize(
    "fault", [Fault(status=True), Fault(cut_request=0), Fault(cut_reply=0), Fault(cut_request=30_000)]
)
def test_what_passes_within_three_tries_is_not_noticed(proxied: Proxied, fault: Fault) -> None:
    data = random.Random(2).randbytes(100_000)
    kept, proxy = proxied(fault, fault)
    ref = kept.artifacts.put(data, ArtifactType.LOG)
    assert proxy.connections >= 3
    assert kept.names() == [f"sha256/{ref.sha256[:2]}/{ref.sha256}"]
    assert kept.artifacts.get(ref) == data


def test_a_server_that_keeps_refusing_is_asked_three_times(proxied: Proxied) -> None:
    kept, proxy = proxied(always=Fault(status=True))
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="1" * 64, size_bytes=1)
    for call in (
        lambda: kept.artifacts.put(b"x", ArtifactType.LOG),
        lambda: kept.artifacts.get(ref),
        lambda: kept.artifacts.has(ref),
        lambda: list(kept.artifacts.stored()),
    ):
        before, began = proxy.connections, time.monotonic()
        failure = reported(call, kept)
        assert "the server answered 503" in str(failure)
        assert proxy.connections - before == 3
        assert time.monotonic() - began < 60
    assert kept.names() == []


def test_tries_are_not_in_step(proxied: Proxied) -> None:
    kept, _ = proxied(always=Fault(status=True))

    def waited() -> float:
        began = time.monotonic()
        with pytest.raises(CodePilotError):
            kept.artifacts.put(b"x", ArtifactType.LOG)
        return time.monotonic() - began

    spans = [waited() for _ in range(6)]
    assert max(spans) - min(spans) > 0.02


def test_a_server_that_does_not_answer_is_not_waited_for_long(proxied: Proxied) -> None:
    kept, proxy = proxied(always=Fault(hold_sec=30), timeout_sec=HASTY_SEC)
    began = time.monotonic()
    failure = reported(lambda: kept.artifacts.put(b"x", ArtifactType.LOG), kept)
    assert time.monotonic() - began < 60
    assert proxy.connections == 3
    assert "did not answer in time" in str(failure)
    kept, _ = proxied(Fault(hold_sec=30), timeout_sec=HASTY_SEC)
    assert kept.artifacts.get(kept.artifacts.put(b"x", ArtifactType.LOG)) == b"x"


def test_a_reply_that_is_lost_does_not_make_a_second_artifact(proxied: Proxied) -> None:
    """The server kept it and the answer never came: the next try finds it there, which is what was wanted."""
    kept, proxy = proxied(Fault(cut_reply=10))
    ref = kept.artifacts.put(b"kept, but who knows", ArtifactType.LOG)
    assert proxy.connections >= 2
    assert kept.artifacts.get(ref) == b"kept, but who knows"
    assert len(kept.names()) == 1


def test_reading_goes_on_where_a_connection_broke(proxied: Proxied) -> None:
    kept, _ = proxied()
    ref = kept.artifacts.put(LARGE, ArtifactType.SNAPSHOT)
    other, proxy = proxied(Fault(cut_reply=3 << 20), Fault(cut_reply=12 << 20))
    artifacts = kept_objects("codepilot", kept.url.partition("codepilot/")[2], other.environ).artifacts
    assert artifacts.get(ref) == LARGE
    assert proxy.connections >= 3


def test_an_upload_that_breaks_off_is_sent_again(proxied: Proxied) -> None:
    kept, proxy = proxied(Fault(), Fault(cut_request=2 << 20), Fault(status=True))
    ref = kept.artifacts.put_stream([LARGE], ArtifactType.SNAPSHOT)
    assert proxy.connections >= 4
    assert kept.artifacts.get(ref) == LARGE
    assert kept.names() == [f"sha256/{ref.sha256[:2]}/{ref.sha256}"]


def test_an_upload_that_never_succeeds_leaves_nothing_to_be_seen(proxied: Proxied) -> None:
    kept, _ = proxied(always=Fault(cut_request=1 << 20))
    reported(lambda: kept.artifacts.put_stream([LARGE], ArtifactType.SNAPSHOT), kept)
    assert kept.names() == []


def test_of_many_who_create_a_key_one_does(s3: S3Server) -> None:
    bucket = Bucket.open(s3.bucket, f"tests/{new_id('a')}", s3.environ)
    together = threading.Barrier(6)

    def create(number: int) -> int | None:
        together.wait()
        return number if bucket.put("raced", b"%02d" % number * 5_000, create=True) else None

    with ThreadPoolExecutor(6) as pool:
        winners = [number for number in pool.map(create, range(6)) if number is not None]
    assert len(winners) == 1
    assert bucket.read("raced", 0, 10_000) == (b"%02d" % winners[0] * 5_000, 10_000)
    assert not bucket.put("raced", io.BytesIO(b"other"), create=True)
    assert bucket.put("fresh", io.BytesIO(b"other"), create=True) and bucket.read("fresh", 0, 5) == (b"other", 5)
    assert bucket.put("raced", io.BytesIO(b"other"), create=False) and bucket.read("raced", 0, 5) == (b"other", 5)


def test_wrong_keys_and_unknown_buckets_are_reported_at_once(s3: S3Server) -> None:
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="1" * 64, size_bytes=1)
    wrong = kept_objects(s3.bucket, "x", {**s3.environ, "AWS_SECRET_ACCESS_KEY": "wrong"})
    assert "403 SignatureDoesNotMatch" in str(reported(lambda: wrong.artifacts.put(b"x", ArtifactType.LOG), wrong))
    unknown = open_artifacts("s3://no-such-bucket/x", s3.environ)
    with pytest.raises(CodePilotError, match="no such bucket"):
        unknown.get(ref)


def test_what_a_bucket_needs_is_asked_for_before_anything_is_sent() -> None:
    keyed = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden"}
    plain = {**keyed, "AWS_ENDPOINT_URL": "http://user:hidden@storage.example"}
    for environ, asked in (({}, "AWS_ACCESS_KEY_ID"), (plain, "AWS_ALLOW_HTTP")):
        with pytest.raises(CodePilotError) as refused:
            open_artifacts("s3://bucket/x", environ)
        assert refused.value.kind is FailureKind.INVALID_SPEC
        assert asked in refused.value.failure.advice and "hidden" not in str(refused.value)
    with pytest.raises(CodePilotError, match="AWS_ENDPOINT_URL"):
        open_artifacts("s3://bucket/x", {**keyed, "AWS_ENDPOINT_URL": "storage.example"})
    assert open_artifacts("s3://bucket/x", {**plain, "AWS_ALLOW_HTTP": "true"}).place == (
        "s3://bucket/x at http://storage.example"
    )


KEYED = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    "url",
    [
        *("s3://b ad", "s3://b<d/x", "s3://[x", "s3://bäd", "s3://b%20d", "s3://..", "s3://b/a//b", "s3://b/..//x"),
        *("s3://b/a/../b", "s3://b/./a", "s3://b/%00", "s3://b/a%0ab", "s3://b/%ff", "file:///x%00", "file://[x"),
    ],
)
def test_a_place_that_no_request_can_name_is_bad_input(url: str) -> None:
    with pytest.raises(CodePilotError) as refused:
        open_artifacts(url, KEYED)
    assert refused.value.kind is FailureKind.INVALID_SPEC
    assert "s3://BUCKET" in refused.value.failure.next_action


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}") for port in ("99999", "abc", "0", "-1", "1:2", "1 ")),
        *(("AWS_ENDPOINT_URL", f"http://{rest}") for rest in ("", "[", "[::g]", "[::1]x", "/x", "a b", "ä", "u@")),
        *(("AWS_ENDPOINT_URL", f"https://user:hidden@localhost{rest}") for rest in (":abc", "?x=1", "#x", "/a b")),
        ("AWS_ENDPOINT_URL_S3", "https://localhost:99999"),
        ("AWS_REGION", "us east"),
        ("AWS_REGION", "us-east-1\n"),
        ("AWS_ACCESS_KEY_ID", "hidden\n"),
        ("AWS_SECRET_ACCESS_KEY", "hidden\n"),
        ("AWS_SESSION_TOKEN", "hidden\n"),
    ],
)
def test_a_setting_that_makes_no_request_is_bad_input(variable: str, value: str) -> None:
    with pytest.raises(CodePilotError) as refused:
        open_artifacts("s3://bucket/x", {**KEYED, variable: value, "AWS_ALLOW_HTTP": "true"})
    assert refused.value.kind is FailureKind.INVALID_SPEC
    reported = f"{refused.value} {refused.value.failure.next_action}"
    assert (variable in reported or value in reported) and "hidden" not in reported


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("http://LOCALHOST", "http://LOCALHOST"),
        ("http://localhost:", "http://localhost:"),
        ("http://[::1]:9000/", "http://[::1]:9000"),
        ("https://user:p%40ss@s3.example.org:65535/a/b%20c/", "https://s3.example.org:65535"),
        ("https://min_io", "https://min_io"),
    ],
)
def test_a_server_may_be_named_in_many_ways(endpoint: str, shown: str) -> None:
    place = open_artifacts("s3://My_bucket.1-x/a b/%C3%A4%2B/", {**KEYED, "AWS_ENDPOINT_URL": endpoint}).place
    assert place == f"s3://My_bucket.1-x/a b/ä+ at {shown}"


def test_a_client_that_panics_is_a_failure_like_others() -> None:
    """What it raises then is no `Exception`, and would end the thread."""
    from obstore.store import S3Store

    broken = S3Store(
        "b ad",
        endpoint="http://127.0.0.1:1",
        access_key_id="k",
        secret_access_key="hidden",
        region="us-east-1",
        client_options={"allow_http": True},
    )
    artifacts = ObjectArtifacts(Bucket(broken, "s3://broken"))
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="1" * 64, size_bytes=1)
    for call in (
        lambda: artifacts.put(b"x", ArtifactType.LOG),
        lambda: artifacts.put(LARGE, ArtifactType.LOG),
        lambda: artifacts.put_stream([LARGE], ArtifactType.LOG),
        lambda: artifacts.get(ref),
        lambda: artifacts.has(ref),
        lambda: list(artifacts.stored()),
        lambda: artifacts.remove(Stored("tmp/x", None, 1, 1), 2),
    ):
        with pytest.raises(CodePilotError, match="s3://broken failed: the client library broke down") as reported:
            call()
        assert reported.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE
        assert reported.value.failure.details["passing"] is False


@pytest.mark.variants
def test_a_server_killed_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    with s3_server(tmp_path / "server") as server:
        host, port = server.endpoint.removeprefix("http://").split(":")
        proxy = FaultyProxy((host, int(port)))
        with proxy.running():
            environ = {**server.environ, "AWS_ENDPOINT_URL": proxy.endpoint}
            kept = kept_objects(server.bucket, "here", environ)
            earlier = kept.artifacts.put(b"earlier", ArtifactType.LOG)
            proxy.on_bytes = (proxy.sent + (10 << 20), server.stop)
            reported(lambda: kept.artifacts.put_stream([LARGE], ArtifactType.SNAPSHOT), kept)
            reported(lambda: kept.artifacts.get(earlier), kept)
            reported(lambda: kept.artifacts.has(earlier), kept)
            server.start()
            straight = kept_objects(server.bucket, "here", server.environ)
            assert straight.names() == [f"sha256/{earlier.sha256[:2]}/{earlier.sha256}"]
            assert kept.artifacts.get(earlier) == b"earlier"
            ref = kept.artifacts.put_stream([LARGE], ArtifactType.SNAPSHOT)
            assert kept.artifacts.get(ref) == LARGE
            assert len(straight.names()) == 2
