"""Becoming more than one is, and calls into the kernel that no program inside needs."""

# ruff: noqa: E501  (programs are data)
from __future__ import annotations

from attack_kit import Attack, attack, by

PRIVILEGE, IMPORTS = "privilege", "import tricks"
NO_CALL = by("seccomp", "EPERM")
ABSENT = by("seccomp", "ENOSYS")


def calls(name: str, *made: str, stop: object = NO_CALL, **more: object) -> Attack:
    return attack(name, PRIVILEGE, "".join(f"call({one})\n" for one in made), stop, **more)  # type: ignore[arg-type]


RISE: tuple[Attack, ...] = (
    attack(
        "become root by a program with the setuid bit",
        PRIVILEGE,
        "import subprocess\nfor path in ('/bin/su', '/usr/bin/sudo', '/usr/bin/passwd', '/bin/mount'):\n"
        "    if os.path.exists(path):\n"
        "        subprocess.run([path, '--help'], capture_output=True)\n"
        "status = libc.prctl(39, 0, 0, 0, 0)\nsay('no_new_privs' if status == 1 else 'privileges')\n"
        "tried(os.setuid, 0) if os.getuid() else tried(os.setuid, 12345)",
        by("capabilities", "no_new_privs", "EPERM", "EINVAL"),
    ),
    attack(
        "leave a program with the setuid bit",
        PRIVILEGE,
        "open('s', 'w').close()\nfor mode in (0o4755, 0o2755, 0o6777): tried(os.chmod, 's', mode)\n"
        "tried(lambda: os.fchmod(os.open('s', os.O_RDONLY), 0o4755))\n"
        "call('fchmodat', -100, b's', 0o4755)\ncall('fchmodat2', -100, b's', 0o4755, 0)\n"
        "tried(os.open, 't', os.O_CREAT | os.O_WRONLY, 0o4755)\n"
        "tried(os.open, '.', os.O_TMPFILE | os.O_WRONLY, 0o4755)\ntried(os.mknod, 'u', 0o104755)",
        NO_CALL,
    ),
    calls("leave one by the newest way to open", '"openat2", -100, b"v", None, 24', stop=ABSENT),
    calls("make a user namespace", '"unshare", 0x10000000', '"unshare", 0x20000', '"unshare", 0x80'),
    calls("make a namespace by clone", '"clone", 0x10000011, 0, 0, 0, 0', '"clone", 0x40000011, 0, 0, 0, 0'),
    calls("make a namespace by clone3", '"clone3", ctypes.create_string_buffer(88), 88', stop=ABSENT),
    calls("enter another namespace", '"setns", 0, 0', '"setns", -1, 0x10000000'),
    attack(
        "take capabilities",
        PRIVILEGE,
        "header = (ctypes.c_uint * 2)(0x20080522, 0); data = (ctypes.c_uint * 6)(*[0xFFFFFFFF] * 6)\n"
        "call('capset', header, data)\nfor bit in (8, 47): say('done' if libc.prctl(bit, 2, 21, 0, 0) == 1 else 'EPERM')",
        by("capabilities", "EPERM"),
    ),
    calls("load a program into the kernel", '"bpf", 5, ctypes.create_string_buffer(128), 128'),
    calls("measure the kernel", '"perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0'),
    calls(
        "use the asynchronous interface",
        '"io_uring_setup", 1, ctypes.create_string_buffer(120)',
        '"io_uring_enter", 0, 0, 0, 0, 0, 0',
    ),
    calls("handle the kernel's page faults", '"userfaultfd", 1', '"userfaultfd", 0'),
    calls("load a module", '"init_module", None, 0, b""', '"finit_module", 0, b"", 0', '"delete_module", b"x", 0'),
    calls("load another kernel", '"kexec_load", 0, 0, None, 0', '"kexec_file_load", -1, -1, 0, None, 0'),
    calls("restart the machine", '"reboot", 0, 0, 0, 0'),
    calls(
        "change swap space and accounting",
        '"swapon", b"x", 0',
        '"swapoff", b"x"',
        '"acct", None',
        '"quotactl", 0, None, 0, None',
    ),
    calls(
        "change the clock",
        '"settimeofday", None, None',
        '"clock_settime", 0, None',
        '"adjtimex", None',
        '"clock_adjtime", 0, None',
    ),
    calls("change the machine's name", '"sethostname", b"x", 1', '"setdomainname", b"x", 1', '"syslog", 2, None, 0'),
    calls("weaken its own address space", '"personality", 0x0400000', '"personality", 0x0008000'),
    calls("reach the hardware", '"ioperm", 0, 1, 1', '"iopl", 3', '"modify_ldt", 1, None, 0', machine="x86_64"),
    calls("listen to every file's events", '"fanotify_init", 0, 0', '"lookup_dcookie", 0, None, 0', '"vhangup"'),
    attack(
        "hold files against anyone who opens them",
        PRIVILEGE,
        "import fcntl\nfor kind in (0, 1): tried(fcntl.fcntl, os.open('f%d' % kind, os.O_RDONLY | os.O_CREAT), 1024, kind)\n"
        "tried(fcntl.fcntl, os.open('/usr/bin/env', os.O_RDONLY), 1024, 0)",
        NO_CALL,
    ),
    attack(
        "call the kernel in 32-bit mode",
        PRIVILEGE,
        "at = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, 0)\n"
        "ctypes.memmove(at, bytes.fromhex('b814000000cd80c3'), 8)\nsay('EPERM')\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(at)()\nsay('done')",
        by("seccomp", "SIGSYS", "EPERM"),
        machine="x86_64",
    ),
    attack(
        "call the kernel by its second numbering",
        PRIVILEGE,
        "NR['x32'] = 0x40000000 | NR['getpid']; call('x32')\nNR['x32'] = 0x40000000 | NR['ptrace']; call('x32', 0, 0, 0, 0)",
        ABSENT,
        machine="x86_64",
    ),
    attack(
        "change a terminal's line discipline",
        PRIVILEGE,
        "call('ioctl', 0, 0x5423, ctypes.byref(ctypes.c_int(21)))",
        NO_CALL,
    ),
    attack(
        "make a sandbox of its own",
        PRIVILEGE,
        "import subprocess\ndone = subprocess.run(['/usr/bin/bwrap', '--ro-bind', '/', '/', '/bin/cat', T['secret']], capture_output=True)\n"
        "say('EPERM' if done.returncode else 'done'); print(done.stdout)",
        NO_CALL,
    ),
    attack(
        "make device nodes",
        PRIVILEGE,
        "tried(os.mknod, 'disk', 0o060666, os.makedev(254, 0))\ntried(os.mknod, 'mem', 0o020666, os.makedev(1, 1))",
        by("capabilities", "EPERM"),
        by("landlock", "EPERM", "EACCES"),
    ),
    attack(
        "have its libraries loaded first",
        IMPORTS,
        "import subprocess\nopen('evil.so', 'w').write('x')\n"
        "say('done' if 'LD_PRELOAD' in os.environ else 'clean')\n"
        "say('done' if any(name.startswith('PYTHON') for name in os.environ) else 'clean')",
        by("clean environment", "clean"),
    ),
)
