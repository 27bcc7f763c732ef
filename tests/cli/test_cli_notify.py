"""Who is informed that a run has ended: as the command has it, and without a word of the secret in the URL."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Command

from receiver import receiver

SECRET = "s3cr3t-of-the-receiver"
PASSES = ("--test", "test_shop.ShopTest.test_bill")
"""A run that asks for this ends soon: there is nothing to mend."""


@pytest.mark.variants
def test_an_end_that_cannot_be_notified_is_reported_and_left_to_the_next_command(
    codepilot: Command, shop: Path, tmp_path: Path
) -> None:
    own = tmp_path / "config" / "codepilot" / "codepilot.toml"
    own.parent.mkdir(parents=True)
    mine = {"XDG_CONFIG_HOME": str(own.parent.parent)}
    with receiver(f"/hooks/{SECRET}", answers=[500, 200]) as reported:
        own.write_text(f'[notify]\nurl = "{reported.url}"\n')
        message = [codepilot("fix", str(shop), *PASSES, "--no-notify", "--json", **mine)]
        assert "notified" not in message[-1].err and reported.received == []
        message.append(codepilot("fix", str(shop), *PASSES, "--json", **mine))
        place = reported.url.partition("/hooks")[0]
        assert f"could not be notified: {place} answered 500" in message[-1].err
        assert (message[-1].code, message[-1].json["failure"]["kind"]) == (2, "test_already_passes"), (
            "its own end counts"
        )
        assert [one["state"] for one in message[-1].json["notifications"]] == ["pending"]
        message.append(codepilot("show", "last", **mine))
        assert "pending after 1 attempt, next from" in message[-1].out
        message.append(codepilot("show", "last", "--json", **mine))
        (pending,) = message[-1].json["notifications"]
        assert (pending["state"], pending["tries"], pending["settled_at"]) == ("pending", 1, None) and pending[
            "not_before"
        ]
        assert codepilot("show", "last", "--json").json["notifications"] == [pending], "the store tells"
        message.append(codepilot("resume", "last", **mine))
        assert message[-1].code == 2 and "notified" not in message[-1].err
        message.append(codepilot("show", "last", "--json", **mine))
        (sent,) = message[-1].json["notifications"]
        assert (sent["event"], sent["state"], sent["reason"]) == (pending["event"], "sent", "200")
        message += [codepilot(command, "last", **mine) for command in ("show", "logs", "diff")]
        assert "sent at" in message[-3].out and "notification sent" in message[-2].out
        message.append(codepilot("doctor", "--no-tests", "--json", cwd=tmp_path, **mine))
        notify = next(one for one in message[-1].json["findings"] if one["name"] == "notify")
        assert notify["detail"] == f"the end of a run is posted to {place}"
    first, second = reported.received
    assert (first.key, first.body) == (second.key, second.body)
    assert (first.json["status"], first.json["failure"]["kind"]) == ("FAILED", "test_already_passes")
    assert not any(SECRET in one.out + one.err for one in message)
    kept = [path.read_bytes() for path in codepilot.home.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in content for content in kept)


def test_one_that_was_given_up_is_reported(codepilot: Command, shop: Path) -> None:
    with receiver("/hook", answers=[410]) as reported:
        mine = {"CODEPILOT_NOTIFY_URL": reported.url}
        ended = codepilot("fix", str(shop), *PASSES, "--json", **mine)
        (found,) = ended.json["notifications"]
        assert (found["state"], "answered 410" in found["reason"]) == ("failed", True)
        assert found["settled_at"] and not found["not_before"]
        assert "failed at" in codepilot("show", "last", **mine).out


def test_what_cannot_be_notified_is_refused_before_anything_runs(codepilot: Command, shop: Path) -> None:
    ended = codepilot("fix", str(shop), "--notify")
    assert ended.code == 2 and "[notify] url" in ended.err
    ended = codepilot("fix", str(shop), CODEPILOT_NOTIFY_URL=f"gopher://host/{SECRET}")
    assert ended.code == 2 and "notify.url" in ended.err and SECRET not in ended.err
    assert codepilot.newest() is None
    run_id = codepilot("submit", str(shop), "--notify").out.strip()
    with codepilot.runtime() as runtime:
        assert runtime.store.load(run_id).task.notify, "workers know where to"
