"""Other processes, /proc, and what tries to stay."""

# ruff: noqa: E501  (programs are data)
from __future__ import annotations

from attack_kit import MB, Attack, attack, by

from codepilot.sandbox import Limits

SIGNALS, PROC, DAEMONS, DEAF = "signals and ptrace", "/proc tricks", "double-fork daemons", "ignoring SIGTERM"
NOBODY = by("pid namespace", "ESRCH")
SCOPED = by("landlock", "EPERM")
NO_CALL = by("seccomp", "EPERM")
SHORT = Limits(wall_sec=0.7, memory_bytes=256 * MB, processes=40, disk_bytes=64 * MB)

PROCESSES: tuple[Attack, ...] = (
    attack(
        "kill the host's processes",
        SIGNALS,
        'tried(os.kill, T["victim_pid"], 9)\ntried(os.kill, T["host_pid"], 0)',
        NOBODY,
        SCOPED,
        control=True,
    ),
    attack(
        "stop the supervisor",
        SIGNALS,
        'for pid in (T["host_pid"], T["victim_pid"]): tried(os.kill, pid, 19)',
        NOBODY,
        SCOPED,
    ),
    attack(
        "kill the parent",
        SIGNALS,
        "import time\ntried(os.kill, os.getppid(), 9)\ntried(os.kill, os.getppid(), 19)\ntime.sleep(0.2)\n",
        by("pid namespace", "done"),
        by("tree end", "done", "SIGKILL"),
    ),
    attack(
        "kill everyone",
        SIGNALS,
        "import signal\nif os.fork() == 0: tried(os.kill, -1, 9)\nelse: os.wait(); tried(os.kill, -1, 0)",
        by("pid namespace", "ESRCH", "SIGKILL", "done"),
        by("landlock", "ESRCH", "EPERM", "SIGKILL", "done"),
    ),
    attack(
        "signal through a handle of a process",
        SIGNALS,
        "import signal\nfd = tried(os.pidfd_open, T['victim_pid'])\nif fd: tried(signal.pidfd_send_signal, fd, 9)",
        by("pid namespace", "ESRCH", "EINVAL"),
        by("landlock", "done", "EPERM"),
        control=True,
    ),
    attack(
        "attach to a process",
        SIGNALS,
        'for request in (16, 0x4206): call("ptrace", request, T["victim_pid"], 0, 0)\ncall("ptrace", 0, 0, 0, 0)',
        NO_CALL,
    ),
    attack(
        "read and write another process's memory by call",
        SIGNALS,
        "buffer = ctypes.create_string_buffer(64); vector = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 64)\n"
        'for name in ("process_vm_readv", "process_vm_writev"): call(name, T["host_pid"], vector, 1, vector, 1, 0)\n'
        'call("process_madvise", 0, vector, 1, 21, 0)\ncall("kcmp", os.getpid(), T["host_pid"], 0, 0, 0)',
        NO_CALL,
    ),
    attack(
        "take another process's descriptor",
        SIGNALS,
        'fd = call("pidfd_open", os.getpid(), 0)\ncall("pidfd_getfd", fd, 0, 0)',
        by("seccomp", "EPERM", "done"),
    ),
    attack(
        "change another process's limits",
        SIGNALS,
        'import resource\ntried(resource.prlimit, T["victim_pid"], resource.RLIMIT_NOFILE, (5, 5))',
        NOBODY,
        NO_CALL,
        control=True,
    ),
    attack(
        "slow another process down",
        SIGNALS,
        'pid = T["victim_pid"]\ntried(os.setpriority, os.PRIO_PROCESS, pid, 19)\ntried(os.sched_setaffinity, pid, [0])\n'
        "tried(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))",
        by("pid namespace", "ESRCH", "EPERM"),
        NO_CALL,
        control=True,
    ),
    attack(
        "slow a whole group of processes down",
        SIGNALS,
        'tried(os.setpriority, os.PRIO_PGRP, T["victim_pid"], 15)',
        by("pid namespace", "ESRCH", "done"),
        NO_CALL,
    ),
    attack(
        "type into the terminal",
        SIGNALS,
        "import fcntl\nfor fd in (0, 1, 2): tried(fcntl.ioctl, fd, 0x5412, b'x'); tried(fcntl.ioctl, fd, 0x541C, b'\\3')\n"
        "call('ioctl', 0, ctypes.c_ulong(0xFFFFFFFF00005412), b'x')",
        NO_CALL,
    ),
    attack(
        "take the terminal over",
        SIGNALS,
        "tried(os.open, '/dev/tty', os.O_RDWR)\ntried(os.tcsetpgrp, 0, os.getpgid(0))",
        by("tree end", "ENXIO", "ENOTTY"),
        by("landlock", "EACCES", "ENOTTY"),
    ),
    attack(
        "send signals by input and output",
        SIGNALS,
        "import fcntl, signal\nr, w = os.pipe()\ntried(fcntl.fcntl, r, fcntl.F_SETOWN, T['victim_pid'])\n"
        "tried(fcntl.fcntl, r, 10, 9)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\nos.write(w, b'x')",
        by("pid namespace", "ESRCH", "EPERM"),
        by("landlock", "done", "EPERM"),
        control=True,
    ),
    attack(
        "name a program for core dumps",
        PROC,
        'tried(write, "/proc/sys/kernel/core_pattern", b"|/bin/sh")\ntried(write, "/proc/sys/kernel/modprobe", b"/bin/sh")',
        by("read-only mount", "EROFS", "EACCES", "ENOENT"),
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "pull the system's request key",
        PROC,
        'tried(os.open, "/proc/sysrq-trigger", os.O_WRONLY)\ntried(os.open, "/proc/sys/kernel/sysrq", os.O_WRONLY)',
        by("read-only mount", "EROFS", "EACCES", "ENOENT"),
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "change kernel settings",
        PROC,
        'for name in ("vm/overcommit_memory", "kernel/hostname", "net/ipv4/ip_forward", "fs/file-max"):\n'
        '    tried(os.open, "/proc/sys/" + name, os.O_WRONLY)',
        by("read-only mount", "EROFS", "EACCES", "ENOENT"),
        by("landlock", "EACCES"),
    ),
    attack(
        "write to the first process's memory",
        PROC,
        'tried(os.open, "/proc/1/mem", os.O_RDWR)\ntried(os.open, "/proc/%d/mem" % os.getppid(), os.O_RDWR)\n'
        'tried(os.open, "/proc/self/mem", os.O_RDWR)',
        by("read-only mount", "EROFS", "EACCES"),
        by("landlock", "EACCES"),
    ),
    attack(
        "open the first process's descriptors",
        PROC,
        "for number in range(3, 20):\n"
        '    for flag in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR): tried(os.open, "/proc/1/fd/%d" % number, flag | os.O_NONBLOCK)',
        by("closed descriptors", "ENOENT", "ENXIO", "EACCES"),
        by("landlock", "EACCES", "ENOENT"),  # which of them it has open changes from moment to moment
    ),
    attack(
        "open its own pipes again",
        PROC,
        'for number in range(3): tried(os.open, "/proc/self/fd/%d" % number, os.O_RDWR | os.O_NONBLOCK)\n'
        'tried(read, "/dev/fd/../../../../" + T["secret"])',
        by("mount namespace", "done", "ENOENT"),
        by("landlock", "EACCES", "ENOENT", "done"),
    ),
    attack(
        "open another process's pipes",
        PROC,
        'for number in range(30): tried(os.open, "/proc/%d/fd/%d" % (T["host_pid"], number), os.O_RDONLY | os.O_NONBLOCK)',
        by("pid namespace", "ENOENT"),
        by("landlock", "EACCES", "ENOENT"),
    ),
    attack(
        "replace the launcher's program file",
        PROC,
        'for path in ("/proc/1/exe", "/proc/%d/exe" % os.getppid(), "/proc/self/exe", "/usr/bin/bwrap"):\n'
        "    tried(os.open, path, os.O_WRONLY)",
        by("read-only mount", "EROFS", "ETXTBSY", "ENOENT", "EACCES"),
        by("landlock", "EACCES", "ETXTBSY"),
    ),
    attack(
        "choose who dies when memory is short",
        PROC,
        'tried(write, "/proc/self/oom_score_adj", b"-1000")\ntried(write, "/proc/%d/oom_score_adj" % T["victim_pid"], b"1000")',
        by("read-only mount", "EROFS", "ENOENT"),
        by("landlock", "EACCES"),
    ),
    attack(
        "map identities anew",
        PROC,
        'for name in ("uid_map", "gid_map", "setgroups"): tried(write, "/proc/self/" + name, b"0 0 1")',
        by("read-only mount", "EROFS"),
        by("landlock", "EACCES"),
    ),
    attack(
        "leave a daemon behind",
        DAEMONS,
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        for fd in (0, 1, 2): os.close(fd)\n        os.execv('/bin/sleep', ['sleep', '60'])\n    os._exit(0)\n"
        "os.wait(); say('done')",
        by("tree end", "done"),
    ),
    attack(
        "leave a daemon that adopts others",
        DAEMONS,
        "import time\nif os.fork() == 0:\n    libc.prctl(36, 1, 0, 0, 0); libc.prctl(1, 0, 0, 0, 0); os.setsid()\n"
        "    if os.fork() == 0:\n        if os.fork() == 0:\n            os.setsid(); time.sleep(60)\n        os._exit(0)\n"
        "    time.sleep(60)\ntime.sleep(0.1); say('done')",
        by("tree end", "done"),
    ),
    attack(
        "respawn faster than it is killed",
        DAEMONS,
        "import signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nend = time.monotonic() + 20\n"
        "def hop(left):\n"
        "    while left and time.monotonic() < end:\n"
        "        if os.fork(): os._exit(0)\n        os.setsid(); left -= 1; time.sleep(0.001)\n"
        "if os.fork() == 0: hop(5000)\ntime.sleep(0.2); say('done')",
        by("tree end", "done"),
    ),
    attack(
        "hold the output open in a daemon",
        DAEMONS,
        "import time\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)\nsay('done')",
        by("tree end", "done"),
    ),
    attack(
        "ignore every signal",
        DEAF,
        "import signal, time\nfor number in range(1, 65):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "say('done')\nwhile True: time.sleep(1)",
        by("wall clock", "done", "limit:wall"),
        limits=SHORT,
    ),
    attack(
        "ignore SIGTERM in a whole family",
        DEAF,
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "for _ in range(10):\n    if os.fork() == 0:\n        os.setsid()\n        while True: time.sleep(1)\n"
        "say('done')\nwhile True: pass",
        by("wall clock", "done", "limit:wall"),
        limits=SHORT,
    ),
    attack(
        "block every signal and stop itself",
        DEAF,
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nsay('done')\nos.kill(0, signal.SIGSTOP)",
        by("wall clock", "done", "limit:wall"),
        limits=SHORT,
    ),
)
