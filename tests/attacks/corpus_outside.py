"""Reading and writing what is not the workspace's, and getting at secrets."""

# ruff: noqa: E501  (programs are data)
from __future__ import annotations

from attack_kit import Attack, attack, by

HIDDEN = by("mount namespace", "ENOENT")
DENIED = by("landlock", "EACCES")
NO_CALL = by("seccomp", "EPERM")
READS, WRITES, SECRETS = "reads outside", "writes outside", "environment and secrets"
LINKS = "symlinks and hard links"


def reads(name: str, *targets: str, category: str = READS) -> Attack:
    program = "".join(f"tried(read, {target})\n" for target in targets)
    return attack(name, category, program, HIDDEN, DENIED, control=True)


OUTSIDE: tuple[Attack, ...] = (
    reads("read a file outside", 'T["secret"]'),
    reads("read a private key", 'T["key"]'),
    reads("read another run's workspace", 'T["other_workspace"]', 'T["tree"] + "/../../r-2/tree/notes.txt"'),
    reads("read the store's database", 'T["database"]'),
    reads("read next to the workspace", 'T["neighbour"]', '"../index.json"'),
    reads("read stored git credentials", 'T["git_credentials"]', category=SECRETS),
    attack("list the directory around", READS, 'tried(os.listdir, T["outside"])', HIDDEN, DENIED),
    attack(
        "read the system's accounts",
        READS,
        'for path in ("/etc/shadow", "/etc/sudoers", "/etc/ssh/sshd_config", "/etc/machine-id"): tried(read, path)',
        HIDDEN,
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "read through /proc/1/root",
        READS,
        'tried(read, "/proc/1/root" + T["secret"])\ntried(read, "/proc/%d/root%s" % (os.getppid(), T["secret"]))',
        HIDDEN,
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "read through a host process's root and directory",
        READS,
        'for way in ("root", "cwd"): tried(read, "/proc/%d/%s%s" % (T["host_pid"], way, T["secret"]))',
        by("pid namespace", "ENOENT"),
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "climb out with ..",
        READS,
        'os.chdir("/")\ntried(read, "../../../../.." + T["secret"])\nfd = os.open(".", os.O_PATH)\n'
        'tried(lambda: os.open("../.." + T["secret"], os.O_RDONLY, dir_fd=fd))',
        HIDDEN,
        DENIED,
    ),
    attack(
        "use inherited descriptors",
        READS,
        'for fd in T["fds"]: tried(os.fstat, fd)\n'
        'tried(lambda: os.open("secret.txt", os.O_RDONLY, dir_fd=T["fds"][1]))\ntried(os.fchdir, T["fds"][1])',
        by("closed descriptors", "EBADF"),
    ),
    attack(
        "read the raw disk",
        READS,
        'for path in ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/mem", "/dev/kmsg", "/dev/port"): tried(read, path)',
        HIDDEN,
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "read kernel settings below /sys",
        READS,
        'for path in ("/sys/kernel/security/lsm", "/sys/class/net", "/sys/firmware"): tried(os.listdir, path)\n'
        'tried(read, "/sys/kernel/mm/transparent_hugepage/enabled")',
        HIDDEN,
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack("mount something", READS, 'call("mount", b"/", b"/tmp", b"none", 4096, None)', NO_CALL),
    attack(
        "mount by the newer calls",
        READS,
        'call("fsopen", b"tmpfs", 0)\ncall("open_tree", -100, b"/", 1)\ncall("move_mount", 0, b"", 0, b"/", 4)\n'
        'call("mount_setattr", -100, b"/", 0, None, 0)\ncall("umount2", b"/proc", 2)',
        NO_CALL,
    ),
    attack("change the root", READS, 'call("chroot", b".")\ncall("pivot_root", b".", b".")', NO_CALL),
    attack(
        "open by handle",
        READS,
        "handle = ctypes.create_string_buffer(200); ctypes.c_uint.from_buffer(handle).value = 128\n"
        'call("name_to_handle_at", -100, b"/", handle, ctypes.byref(ctypes.c_int()), 0)\n'
        'call("open_by_handle_at", -100, handle, 0)',
        NO_CALL,
    ),
    attack(
        "learn of files outside by watching",
        READS,
        'fd = libc.inotify_init1(0)\ncall("inotify_add_watch", fd, T["outside"].encode(), 0xFFF)',
        HIDDEN,
        by("notifier", "EACCES"),
        control=False,
    ),
    attack(
        "read attributes of a file outside",
        READS,
        'tried(os.listxattr, T["secret"])\ntried(os.getxattr, T["secret"], "user.canary")',
        HIDDEN,
        by("seccomp", "ENOTSUP", "EOPNOTSUPP"),
        control=True,
    ),
    attack(
        "write to a file outside",
        WRITES,
        'tried(write, T["secret"])',
        HIDDEN,
        DENIED,
        control=True,
    ),
    attack(
        "delete, rename and truncate outside",
        WRITES,
        'tried(os.unlink, T["secret"])\ntried(os.rename, T["key"], T["key"] + ".old")\n'
        'tried(os.truncate, T["database"], 0)\ntried(os.mkdir, T["outside"] + "/made")',
        HIDDEN,
        DENIED,
        control=True,
    ),
    attack(
        "make files next to the workspace",
        WRITES,
        'tried(write, "../planted")\ntried(os.rename, T["tree"], T["tree"] + "-moved")\n'
        'tried(os.symlink, "/etc", "../link")',
        by("mount namespace", "done", "EROFS", "EBUSY"),
        DENIED,
    ),
    attack(
        "write where the system's programs are",
        WRITES,
        'for path in ("/usr/bin/planted", "/etc/planted", "/planted", "/lib/planted"): tried(write, path)\n'
        'tried(os.unlink, "/usr/bin/env")',
        by("read-only mount", "EROFS"),
        DENIED,
    ),
    attack(
        "open what others may read: chmod outside",
        WRITES,
        'tried(os.chmod, T["secret"], 0o666)\ntried(os.chmod, T["outside"], 0o777)\n'
        'if "fchmodat2" in NR: call("fchmodat2", os.open(os.path.dirname(T["tree"]), os.O_PATH), b"index.json", 0o666, 0)',
        HIDDEN,
        by("notifier", "EACCES", "ENOENT"),
        control=True,
    ),
    attack(
        "change a mode through a handle",
        WRITES,
        'tried(lambda: call("fchmodat2", os.open(T["secret"], os.O_PATH), b"", 0o666, 0x1000))',
        HIDDEN,
        by("notifier", "EACCES", "done"),
        control=True,
    ),
    attack(
        "change the mode of what may be read",
        WRITES,
        'fd = os.open("/usr/bin/env", os.O_RDONLY)\ntried(os.fchmod, fd, os.fstat(fd).st_mode & 0o777)\n'
        'tried(os.utime, "/usr/bin/env", ns=(os.fstat(fd).st_atime_ns, os.fstat(fd).st_mtime_ns))',
        by("read-only mount", "EROFS", "EPERM"),
        by("notifier", "EACCES"),
    ),
    attack(
        "take the host's devices from others",
        WRITES,
        'for name in ("null", "zero", "full", "random", "urandom", "tty"):\n'
        '    path = "/dev/" + name; seen = os.stat(path)\n'
        "    tried(os.chmod, path, seen.st_mode & 0o777)\n"
        "    tried(os.utime, path, ns=(seen.st_atime_ns, seen.st_mtime_ns))",
        by("read-only mount", "EROFS", "EPERM"),
        by("notifier", "EACCES"),
    ),
    attack(
        "read and remove the host's message queues",
        WRITES,
        'call("mq_open", T["queue"].encode(), os.O_RDWR, 0, None)\ncall("mq_unlink", T["queue"].encode())',
        by("ipc namespace", "ENOENT"),
        by("seccomp", "EPERM"),
        control=True,
    ),
    attack(
        "set times outside",
        WRITES,
        'tried(os.utime, T["secret"], (1, 1))\ntried(os.utime, T["neighbour"], (1, 1))',
        HIDDEN,
        by("notifier", "EACCES"),
        control=True,
    ),
    attack(
        "set attributes outside",
        WRITES,
        'tried(os.setxattr, T["secret"], "user.planted", b"x")',
        HIDDEN,
        by("seccomp", "ENOTSUP", "EOPNOTSUPP"),
        control=True,
    ),
    attack(
        "give a file outside away",
        WRITES,
        'tried(os.chown, T["secret"], 12345, 12345)\ntried(os.lchown, T["key"], 12345, 12345)',
        HIDDEN,
        by("seccomp", "EPERM"),
    ),
    attack(
        "read the environment of the host's processes",
        SECRETS,
        'for pid in (T["host_pid"], T["victim_pid"], 1, os.getppid()): tried(read, "/proc/%s/environ" % pid)',
        by("pid namespace", "ENOENT", "done"),
        DENIED,
        control=True,
    ),
    attack(
        "read every command line and environment there is",
        SECRETS,
        'import glob\nfor path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"): tried(read, path)\n'
        'tried(read, "/proc/%d/environ" % T["victim_pid"])',
        by("pid namespace", "ENOENT", "done", "EACCES"),
        DENIED,
    ),
    attack(
        "find secrets in its own environment",
        SECRETS,
        'tried(lambda: {name: value for name, value in os.environ.items() if "CANARY" in name or "KEY" in name})\n'
        'tried(os.environ.__getitem__, "MARK")',
        by("clean environment", "done"),
    ),
    attack(
        "read kernel keyrings",
        SECRETS,
        'call("keyctl", 0, -3, 0)\ncall("add_key", b"user", b"x", b"y", 1, -3)\ncall("request_key", b"user", b"x", None, 0)',
        NO_CALL,
    ),
    attack(
        "ask the cloud for credentials",
        SECRETS,
        "import socket\n"
        'tried(lambda: socket.create_connection(("169.254.169.254", 80), 2))\n'
        'tried(lambda: socket.create_connection(("fd00:ec2::254", 80), 2))',
        by("network namespace", "ENETUNREACH", "EADDRNOTAVAIL"),
        by("seccomp", "EAFNOSUPPORT"),
    ),
    attack(
        "read another process's memory",
        SECRETS,
        'tried(os.open, "/proc/%d/mem" % T["victim_pid"], os.O_RDONLY)\ntried(read, "/proc/%d/maps" % T["victim_pid"])',
        by("pid namespace", "ENOENT"),
        DENIED,
    ),
    attack(
        "read the kernel's own tables",
        SECRETS,
        'for name in ("kcore", "keys", "timer_list", "kmsg", "sched_debug", "slabinfo", "kallsyms", "iomem"):\n'
        '    tried(lambda: [line for line in read("/proc/" + name).splitlines() if line.strip(b"0 ")][0])',
        by("mount namespace", "ENOENT", "EACCES", "EPERM"),
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "read a secret through a link",
        LINKS,
        'os.symlink(T["secret"], "link")\ntried(read, "link")\nos.symlink(T["outside"], "dir")\ntried(read, "dir/secret.txt")',
        HIDDEN,
        DENIED,
        control=True,
    ),
    attack(
        "write to a secret through a link",
        LINKS,
        'os.symlink(T["secret"], "link")\ntried(write, "link")',
        HIDDEN,
        DENIED,
        control=True,
    ),
    attack(
        "hard link a file outside",
        LINKS,
        'tried(os.link, T["secret"], "hard")\ntried(os.link, "/usr/bin/env", "env")',
        by("mount namespace", "ENOENT", "EXDEV"),
        by("landlock", "EACCES", "EXDEV", "EPERM"),
    ),
    attack(
        "win a race between a check and an open",
        LINKS,
        "import threading, time\nopen('plain', 'w').close()\nstop = time.monotonic() + 1\n"
        "def swap():\n"
        "    while time.monotonic() < stop:\n"
        '        os.symlink(T["secret"], "s"); os.replace("s", "x"); os.link("plain", "p"); os.replace("p", "x")\n'
        "threading.Thread(target=swap).start()\nerrors = set()\n"
        "while time.monotonic() < stop:\n"
        "    try:\n        if got := read('x').decode(): stop = print(got) or 0\n"
        "    except OSError as error: errors.add(errno.errorcode[error.errno])\n"
        "for one in errors: say(one)\n",
        HIDDEN,
        by("landlock", "EACCES", "ENOENT"),
        control=True,
    ),
)
