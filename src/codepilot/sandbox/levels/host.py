"""The part of the host that every confined program may read, and its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind

ROOT_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

ETC = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "fonts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "magic.mime",
    "maven",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/ca-trust",
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
    "xml",
)
"""Entries of /etc that toolchains read. Accounts, host names, keys and machine ids are not shown."""

ETC_ONLINE = ("resolv.conf", "hosts", "host.conf", "gai.conf")

KERNEL_TABLES = (
    *("config.gz", "iomem", "ioports", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount"),
    *("kpageflags", "latency_stats", "modules", "pagetypeinfo", "sched_debug", "slabinfo", "sysrq-trigger"),
    *("timer_list", "timer_stats", "vmallocinfo", "zoneinfo"),
)
"""Files of /proc that describe the machine."""

_ONE_BYTES = 1 << 17
"""The size that a single argument, with its NUL, must stay below."""
_POINTER_BYTES, _LAUNCHER_BYTES = 9, 1 << 14

USER, USER_ID = "codepilot", 1000
HOSTS = "127.0.0.1 localhost codepilot\n::1 localhost\n"
"""The host names in a network that has only a loopback interface."""
GROUP = f"root:x:0:\n{USER}:x:{USER_ID}:\n"

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def passwd(home: str) -> str:
    return f"root:x:0:0:root:/:/usr/sbin/nologin\n{USER}:x:{USER_ID}:{USER_ID}::{home}:/bin/sh\n"


@cache
def etc_paths(network: bool) -> tuple[Path, ...]:
    """The readable entries of /etc that exist here, versioned toolchain directories included."""
    etc = Path("/etc")
    names = (*ETC, *ETC_ONLINE) if network else ETC
    found = [etc / name for name in names if (etc / name).exists()]
    for pattern in ("java-*", "python3*"):
        found.extend(sorted(etc.glob(pattern)))
    return tuple(found)


def check(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse arguments that no command line can hold. A NUL would split an argument of the launcher."""
    try:
        texts = [os.fsencode(text) for text in (*argv, *env, *env.values())]
    except UnicodeEncodeError as error:
        raise _not_passed_on() from error
    named = all(argv[:1]) and all(name and "=" not in name for name in env)
    if not argv or not named or any(b"\0" in text for text in texts):
        raise _not_passed_on()
    if max(map(len, texts)) >= _ONE_BYTES or sum(len(text) + _POINTER_BYTES for text in texts) > _all_bytes():
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS,
            "the command and its environment are longer than the system lets a command line be",
            "Write what is long to a file, or to the command's standard input.",
        )


def _not_passed_on() -> CodePilotError:
    return CodePilotError(FailureKind.TOOL_INVALID_ARGS, "the command or its environment cannot be passed on")


def _all_bytes() -> int:
    return os.sysconf("SC_ARG_MAX") - _LAUNCHER_BYTES


def environment(home: str, temp: str, extra: Mapping[str, str]) -> dict[str, str]:
    """A fixed, small environment; nothing of the host's own passes. `extra` wins."""
    return {
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": home,
        "LANG": "C.UTF-8",
        "LOGNAME": USER,
        "PATH": PATH,
        "SHELL": "/bin/sh",
        "TMPDIR": temp,
        "USER": USER,
        **extra,
    }
