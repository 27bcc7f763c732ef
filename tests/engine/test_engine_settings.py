"""Whose configuration counts: the reader's own loosens and tightens, a repository's only tightens."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine import Request, make_task
from codepilot.engine.settings import Settings
from configured import configured


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    own = tmp_path / "config" / "codepilot"
    repo = tmp_path / "repo"
    own.mkdir(parents=True)
    repo.mkdir()
    return own / "codepilot.toml", repo / "codepilot.toml"


def load(files: tuple[Path, Path], own: str = "", repo: str = "", **environ: str) -> Settings:
    files[0].write_text(own)
    files[1].write_text(repo)
    return Settings.load(files[1].parent, {"XDG_CONFIG_HOME": str(files[0].parent.parent), **environ})


def test_a_repository_cannot_open_the_network(files: tuple[Path, Path]) -> None:
    assert load(files, repo='[policy]\nhosts = ["evil.example"]').policy.hosts == ()
    both = load(files, own='[policy]\nhosts = ["pypi.org", "a.org"]', repo='[policy]\nhosts = ["pypi.org", "b.org"]')
    assert both.policy.hosts == ("pypi.org",)
    assert load(files, repo='[policy]\ntest_hosts = ["evil.example"]').policy.test_hosts == ()


def test_a_repository_may_only_be_stricter(files: tuple[Path, Path]) -> None:
    loose = '[policy]\nviolations = 50\nimports = "off"\ngenerated_code = "off"'
    strict = '[policy]\nviolations = 1\nimports = "strict"\ngenerated_code = "low"\nleast_level = "bubblewrap"'
    assert load(files, own=strict, repo=loose).policy == load(files, own=strict).policy
    assert load(files, repo=strict).policy == load(files, own=strict).policy
    assert load(files, own=loose).policy.violations == 50


def test_what_a_repository_does_not_say_stays(files: tuple[Path, Path]) -> None:
    policy = load(files, own='[policy]\nhosts = ["pypi.org"]', repo="[policy]\nviolations = 1").policy
    assert (policy.hosts, policy.violations) == (("pypi.org",), 1)


LISTS = """[policy]
rates = {{ run_command = {rate} }}
[policy.tools]
allow = [{allow}]
deny = ["{deny}"]
[[policy.arguments]]
pattern = "{deny} *"
[policy.path_rules.implementer]
allow = ["{area}"]
"""


def test_the_lists_of_both_are_joined(files: tuple[Path, Path]) -> None:
    mine = LISTS.format(rate=5, allow='"read_*", "run_command", "grep"', deny="curl", area="src/**")
    theirs = LISTS.format(rate=50, allow='"read_file", "run_*", "write_file"', deny="wget", area="src/shop")
    policy = load(files, own=mine, repo=theirs).policy
    assert (set(policy.tools.allow), policy.tools.deny) == ({"run_command", "read_file"}, ("curl", "wget"))
    assert (policy.rates, [one.pattern for one in policy.arguments]) == ({"run_command": 5}, ["curl *", "wget *"])
    assert policy.path_rules["implementer"].allow == ("src/shop",)
    alone = load(files, repo=theirs).policy
    assert (alone.tools.deny, alone.rates) == (("wget",), {"run_command": 50})
    apart = load(files, own=mine, repo=LISTS.format(rate=1, allow='"glob"', deny="x", area="docs")).policy
    assert (apart.tools.allow, apart.path_rules["implementer"].allow) == (("-",), ("-",))


@pytest.mark.parametrize("own", ["", "best", "landlock", "bubblewrap"])
@pytest.mark.parametrize("repo", ["best", "landlock", "bubblewrap"])
def test_a_repository_may_only_demand_the_strongest_level(files: tuple[Path, Path], own: str, repo: str) -> None:
    mine = f'[sandbox]\nlevel = "{own}"' if own else ""
    expected = "bubblewrap" if repo == "bubblewrap" else own or "best"
    assert load(files, own=mine, repo=f'[sandbox]\nlevel = "{repo}"').sandbox.level == expected


@pytest.mark.parametrize("tokens", ["99999999", '"99999999"'])
def test_a_repository_spends_no_more_however_it_writes_it(files: tuple[Path, Path], tokens: str) -> None:
    own = "[budget]\ntokens = 1000\ncost_usd = 0.5"
    repo = f'[budget]\ntokens = {tokens}\ncost_usd = "1000"\npatch_lines = 100000\nwall_sec = 7200'
    budget = load(files, own=own, repo=repo).budget
    assert (budget["tokens"], budget["cost_usd"], budget["patch_lines"], budget["wall_sec"]) == (1000, 0.5, 300, 7200)
    assert load(files, own=own, repo="[budget]\ntokens = 10").budget["tokens"] == 10


def test_a_repository_may_raise_only_what_its_reader_has_not_set(files: tuple[Path, Path]) -> None:
    budget = load(files, own="[budget]\nwall_sec = 30", repo="[budget]\nwall_sec = 900\ncommand_sec = 900").budget
    assert (budget["wall_sec"], budget["command_sec"]) == (30, 900)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("[policy]\nviolatons = 1", "there is no setting policy.violatons; did you mean violations?"),
        ("[polcy]\nviolations = 1", "there is no setting polcy; did you mean policy?"),
        ("sandbox = 1", "[sandbox] must be a section"),
        (
            '[policy]\ngenerated_code = "x"',
            "policy.generated_code: Input should be one of 'low', 'medium', 'high', 'off'",
        ),
    ],
)
def test_a_mistake_is_reported_in_plain_words(files: tuple[Path, Path], text: str, output: str) -> None:
    with pytest.raises(CodePilotError) as refused:
        load(files, own=text)
    assert output in refused.value.failure.message


def test_both_spellings_of_a_name_mean_the_same(files: tuple[Path, Path]) -> None:
    settings = load(files, own='[policy]\nleastLevel = "landlock"', repo='[policy]\ngeneratedCode = "low"')
    assert (settings.policy.least_level, settings.policy.generated_code) == ("landlock", "low")
    assert load(files, own='[policy]\ngenerated_code = "low"', repo='[policy]\ngeneratedCode = "off"').policy == (
        load(files, own='[policy]\ngenerated_code = "low"').policy
    )


def test_a_repository_cannot_send_code_elsewhere(files: tuple[Path, Path]) -> None:
    with pytest.raises(CodePilotError) as refused:
        load(files, repo='[executor]\nurl = "https://evil.example"')
    assert refused.value.kind is FailureKind.INVALID_SPEC
    assert load(files, own='[executor]\nurl = "https://mine.example"').executor.url == "https://mine.example"


def test_who_receives_ends_is_the_readers_own(files: tuple[Path, Path]) -> None:
    with pytest.raises(CodePilotError, match="may not choose where the ends") as refused:
        load(files, repo='[notify]\nurl = "https://evil.example"')
    assert refused.value.kind is FailureKind.INVALID_SPEC
    url = "https://mine.example/hooks/s3cr3t"
    for settings in (load(files, own=f'[notify]\nurl = "{url}"'), load(files, CODEPILOT_NOTIFY_URL=url)):
        assert settings.notify.url is not None and settings.notify.url.get_secret_value() == url
        assert "s3cr3t" not in repr(settings)
    assert load(files, own=f'[notify]\nurl = "{url}"', CODEPILOT_NOTIFY_URL="").notify.url is None


@pytest.mark.parametrize(
    "url", ["mine.example/s3cr3t", "ftp://mine.example/s3cr3t", "https:///s3cr3t", "http://x/s3cr3t x"]
)
def test_a_url_that_cannot_be_reported_is_refused_early_and_without_its_secret(
    files: tuple[Path, Path], url: str
) -> None:
    for output in ({"own": f'[notify]\nurl = "{url}"'}, {"CODEPILOT_NOTIFY_URL": url}):
        with pytest.raises(CodePilotError, match=r"notify\.url") as refused:
            load(files, **output)
        reported = "".join(traceback.format_exception(refused.value)) + repr(refused.value.failure)
        assert "s3cr3t" not in reported


def test_the_end_of_a_task_is_notified_if_it_is_known_where_to(checkout: Path) -> None:
    known = {"CODEPILOT_NOTIFY_URL": "https://mine.example"}
    assert make_task(Request(repo=str(checkout)), configured(known)).notify
    assert not make_task(Request(repo=str(checkout)), configured()).notify
    assert not make_task(Request(repo=str(checkout), notify=False), configured(known)).notify
    with pytest.raises(CodePilotError) as refused:
        make_task(Request(repo=str(checkout), notify=True), configured())
    assert refused.value.kind is FailureKind.INVALID_SPEC and "CODEPILOT_NOTIFY_URL" in refused.value.failure.advice
    assert make_task(Request(repo=str(checkout), notify=True, elsewhere=True), configured()).notify, "workers know"
    assert "mine.example" not in make_task(Request(repo=str(checkout)), configured(known)).model_dump_json()


def test_the_environment_speaks_for_the_reader(files: tuple[Path, Path]) -> None:
    settings = load(
        files,
        repo="[policy]\nviolations = 1",
        CODEPILOT_POLICY_HOSTS="pypi.org,*.example.org",
        CODEPILOT_EXECUTOR_URL="http://127.0.0.1:1",
        CODEPILOT_EXECUTOR_TOKEN="not a setting",
    )
    assert settings.policy.hosts == ("pypi.org", "*.example.org")
    assert settings.executor.url == "http://127.0.0.1:1"
    assert "not a setting" not in repr(settings)


@pytest.mark.parametrize("text", ['[policy]\nhosts = ["http://x"]', "[policy]\nviolations = 0", "[policy]\nnope = 1"])
def test_a_mistake_names_the_file(files: tuple[Path, Path], text: str) -> None:
    with pytest.raises(CodePilotError) as refused:
        load(files, repo=text)
    assert str(files[1]) in refused.value.failure.message


def test_what_the_docs_show_can_be_written(files: tuple[Path, Path]) -> None:
    pages = (Path(__file__).parents[2] / "docs").glob("*.md")
    blocks = [block for page in pages for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)]
    blocks = [block for block in blocks if "entry-points" not in block]  # that one is a package's pyproject.toml
    assert blocks
    for block in blocks:
        assert load(files, own=block) != load(files)


def test_a_repository_cannot_choose_models_or_their_addresses(files: tuple[Path, Path]) -> None:
    for line in ('default = "openai:gpt-5"', 'anthropic_url = "https://evil.example"', "timeout_sec = 1"):
        with pytest.raises(CodePilotError, match="may not choose which models"):
            load(files, repo=f"[models]\n{line}")


def test_models_are_the_readers_to_configure(files: tuple[Path, Path]) -> None:
    own = """[models]
fallback = "openai:gpt-5"
[models.roles.Reviewer]
temperature = 0.0
max_tokens = 1024
[models.known."qwen3"]
input_usd = 0.1
output_usd = 0.4
context_tokens = 32000
tools = false
"""
    models = load(files, own=own, CODEPILOT_MODELS_DEFAULT="anthropic:x", CODEPILOT_MODEL_KEY="not a setting").models
    assert (models.default, models.fallback) == ("anthropic:x", "openai:gpt-5")
    assert models.roles["Reviewer"].max_tokens == 1024
    assert models.known["qwen3"].context_tokens == 32000
    assert "not a setting" not in repr(models)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("[models]\ndefalt = 'x'", "did you mean default?"),
        ("[models]\napi_key = 'sk-1'", "there is no setting models.api_key"),
        ("[models.roles.Reviewer]\ntemperature = 3", "models.roles.Reviewer.temperature"),
        ("[models.known.x]\ninput_usd = -1", "models.known.x.input_usd"),
    ],
)
def test_a_mistake_about_models_is_reported(files: tuple[Path, Path], text: str, output: str) -> None:
    with pytest.raises(CodePilotError) as refused:
        load(files, own=text)
    assert output in refused.value.failure.message


def test_a_repository_may_only_have_less_of_memory(files: tuple[Path, Path]) -> None:
    assert load(files).memory.enabled
    assert not load(files, repo="[memory]\nenabled = false").memory.enabled
    assert not load(files, own="[memory]\nenabled = false", repo="[memory]\nenabled = true").memory.enabled
    across = "[memory]\nacross_repositories = true"
    assert not load(files, repo=across).memory.across_repositories
    assert load(files, own=across).memory.across_repositories
    assert load(files, own=across, repo="[memory]\nenabled = true").memory.across_repositories
    assert load(files, own=across, repo=across).memory.across_repositories
    assert not load(files, CODEPILOT_MEMORY_ENABLED="false").memory.enabled
