"""Using up what is shared: processes, memory, disk, output. Every program is bounded in itself as well."""

# ruff: noqa: E501  (programs are data)
from __future__ import annotations

from dataclasses import replace

from attack_kit import MB, Attack, attack, by

from codepilot.sandbox import Limits

FORKS, MEMORY, DISK, OUTPUT = "fork bomb", "memory bomb", "disk fill", "output flood"
SMALL = Limits(
    wall_sec=8,
    memory_bytes=96 * MB,
    processes=20,
    file_bytes=32 * MB,
    disk_bytes=12 * MB,
    output_bytes=64 << 10,
)
WATCHED = by("cgroup or watchdog", "limit:memory", "done")

BOMBS: tuple[Attack, ...] = (
    attack(
        "fork bomb",
        FORKS,
        "import time\nfor _ in range(8):\n    try: os.fork()\n    except OSError: pass\ntime.sleep(6)",
        by("cgroup or watchdog", "limit:processes"),
        limits=SMALL,
    ),
    attack(
        "fork bomb of sessions that ignore signals",
        FORKS,
        "import signal, time\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n"
        "for _ in range(200):\n    try:\n        if os.fork() == 0:\n            os.setsid(); time.sleep(6); os._exit(0)\n"
        "    except OSError: break\ntime.sleep(6)",
        by("cgroup or watchdog", "limit:processes"),
        limits=SMALL,
    ),
    attack(
        "thread bomb",
        FORKS,
        "import threading, time\nmade = 0\nthreading.stack_size(32768)\ntry:\n    for made in range(1500):\n"
        "        threading.Thread(target=time.sleep, args=(6,), daemon=True).start()\n"
        "except RuntimeError: say('EAGAIN')\nelse: say('made')\n",
        by("rlimit", "EAGAIN", "limit:processes"),
        limits=SMALL,
    ),
    attack(
        "allocate memory",
        MEMORY,
        "import time\nkept = []\nfor _ in range(60): kept.append(bytearray(b'x' * (10 << 20)))\nsay('filled')",
        by("cgroup or watchdog", "limit:memory"),
        limits=SMALL,
    ),
    attack(
        "allocate more than there may be at once",
        MEMORY,
        "def grab():\n    bytearray(b'x') * (600 << 20)\ntried(grab)",
        by("cgroup or watchdog", "MemoryError", "limit:memory"),
        limits=SMALL,
    ),
    attack(
        "allocate memory in many processes",
        MEMORY,
        "import time\nfor _ in range(10):\n    if os.fork() == 0:\n        kept = bytearray(b'x' * (20 << 20)); time.sleep(6); os._exit(0)\n"
        "time.sleep(6); say('filled')",
        by("cgroup or watchdog", "limit:memory"),
        limits=SMALL,
    ),
    attack(
        "fill shared memory of a mapping",
        MEMORY,
        "import mmap, time\nshared = mmap.mmap(-1, 300 << 20)\nfor at in range(0, len(shared), 4096): shared[at] = 1\n"
        "time.sleep(3); say('filled')",
        by("cgroup or watchdog", "limit:memory"),
        limits=SMALL,
    ),
    attack(
        "fill page tables without touching memory",
        MEMORY,
        "import time\nsize = 200 << 30\nat = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, 0)\n"
        "libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 15)\n"
        "for offset in range(0, size, 2 << 20): ctypes.c_char.from_address(at + offset).value\n"
        "time.sleep(3); say('filled')",
        by("cgroup or watchdog", "limit:memory"),
        limits=SMALL,
    ),
    attack(
        "hide memory in a file without a name",
        MEMORY,
        'call("memfd_create", b"x", 0)\ncall("memfd_secret", 0)',
        by("seccomp", "ENOSYS"),
    ),
    attack(
        "hide memory in System V segments",
        MEMORY,
        'call("shmget", 0, 64 << 20, 0o1600)\ncall("msgget", 0, 0o1600)\ncall("semget", 0, 10, 0o1600)',
        by("seccomp", "EPERM"),
    ),
    attack(
        "fill /dev/shm",
        MEMORY,
        "def fill():\n    with open('/dev/shm/x', 'wb', 0) as file:\n        for _ in range(400): file.write(bytes(1 << 20))\ntried(fill)",
        by("sized tmpfs", "ENOSPC", "limit:memory"),
        by("landlock", "EACCES"),
        limits=replace(SMALL, memory_bytes=256 * MB, file_bytes=512 * MB),
    ),
    attack(
        "fill /tmp",
        MEMORY,
        "def fill():\n    for number in range(30):\n        with open(os.environ['TMPDIR'] + '/x%d' % number, 'wb', 0) as file:\n"
        "            for _ in range(20): file.write(bytes(1 << 20))\n"
        "tried(fill)\nimport time; time.sleep(1.2)",
        by("sized tmpfs", "ENOSPC", "limit:memory", "limit:disk"),
        by("cgroup or watchdog", "limit:disk"),
        limits=replace(SMALL, memory_bytes=512 * MB),
    ),
    attack(
        "fill pipes",
        MEMORY,
        "import fcntl\nkept = []\ntry:\n    for _ in range(600):\n        ends = os.pipe(); kept.append(ends)\n"
        "        os.set_blocking(ends[1], False)\n        try: fcntl.fcntl(ends[1], 1031, 1 << 20)\n        except OSError: pass\n"
        "        os.write(ends[1], bytes(1 << 20))\nexcept OSError as error: say(errno.errorcode[error.errno])",
        by("rlimit", "EMFILE"),
        limits=SMALL,
    ),
    attack(
        "fill memory with the names of empty files",
        MEMORY,
        "import time\nfor number in range(60000): os.close(os.open('%s/%d' % (os.environ['TMPDIR'], number), os.O_CREAT | os.O_WRONLY))\n"
        "time.sleep(2); say('filled')",
        by("cgroup or watchdog", "limit:memory"),
        by("cgroup or watchdog", "limit:disk"),
        limits=replace(SMALL, memory_bytes=40 * MB, wall_sec=20),
    ),
    attack(
        "lock memory",
        MEMORY,
        "area = ctypes.create_string_buffer(4 << 20)\n"
        "tried(lambda: libc.mlock(area, 4 << 20) and (_ for _ in ()).throw(OSError(ctypes.get_errno(), '')))\n",
        by("rlimit", "ENOMEM", "EPERM"),
        limits=SMALL,
    ),
    attack(
        "open every file there may be",
        MEMORY,
        "kept = []\ndef grab():\n    while len(kept) < 5000: kept.append(os.open('/dev/null', os.O_RDONLY))\ntried(grab)",
        by("rlimit", "EMFILE"),
    ),
    attack(
        "use up the host's asynchronous requests",
        MEMORY,
        'call("io_setup", 60000, ctypes.byref(ctypes.c_ulong()))',
        by("seccomp", "ENOSYS"),
    ),
    attack(
        "write one big file",
        DISK,
        "def fill():\n    with open('big', 'wb', 0) as file:\n        for _ in range(300): file.write(bytes(1 << 20))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\ntried(fill)",
        by("rlimit", "EFBIG", "limit:disk"),
        limits=replace(SMALL, disk_bytes=64 * MB),
    ),
    attack(
        "write many files",
        DISK,
        "import time\nfor number in range(10):\n    with open('f%d' % number, 'wb') as file: file.write(bytes(4 << 20))\n"
        "time.sleep(4); say('filled')",
        by("cgroup or watchdog", "limit:disk"),
        limits=SMALL,
    ),
    attack(
        "write a million tiny files",
        DISK,
        "import time\nfor number in range(3000): os.close(os.open('f%d' % number, os.O_CREAT | os.O_WRONLY))\n"
        "time.sleep(4); say('filled')",
        by("cgroup or watchdog", "limit:disk"),
        limits=replace(SMALL, disk_bytes=4 * MB),
    ),
    attack(
        "reserve space without writing",
        DISK,
        "import time\nfor number in range(6):\n    fd = os.open('f%d' % number, os.O_CREAT | os.O_RDWR); os.posix_fallocate(fd, 0, 8 << 20)\n"
        "time.sleep(4); say('filled')",
        by("cgroup or watchdog", "limit:disk"),
        limits=SMALL,
    ),
    attack(
        "reserve more than a file may hold",
        DISK,
        "fd = os.open('f', os.O_CREAT | os.O_RDWR)\n"
        "for mode in (0, 1): call('fallocate', fd, mode, ctypes.c_long(0), ctypes.c_long(48 << 20))",
        by("seccomp", "ENOTSUP", "EOPNOTSUPP"),
        limits=SMALL,
    ),
    attack(
        "fill the disk and end before anybody looks",
        DISK,
        "for number in range(20):\n    with open('f%d' % number, 'wb') as file: file.write(bytes(4 << 20))\n",
        by("cgroup or watchdog", "limit:disk"),
        limits=SMALL,
    ),
    attack(
        "write more than a file may hold",
        DISK,
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "with open('big', 'wb', 0) as file:\n    for _ in range(50): file.write(bytes(1 << 20))",
        by("rlimit", "limit:file", "limit:disk"),
        limits=replace(SMALL, disk_bytes=64 * MB),
    ),
    attack(
        "fill the disk with deleted files that stay open",
        DISK,
        "import time\nkept = []\nfor number in range(10):\n    fd = os.open('f', os.O_CREAT | os.O_RDWR); os.write(fd, bytes(4 << 20)); os.unlink('f')\n"
        "    kept.append(fd)\ntime.sleep(4); say('filled')",
        by("cgroup or watchdog", "limit:disk"),
        limits=SMALL,
    ),
    attack(
        "fill the disk with deleted files that stay mapped",
        DISK,
        "import time\nfor number in range(30):\n    fd = os.open('f', os.O_CREAT | os.O_RDWR); os.write(fd, bytes(4 << 20))\n"
        "    libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, 0); os.unlink('f'); os.close(fd); time.sleep(0.1)\n"
        "time.sleep(4); say('filled')",
        by("cgroup or watchdog", "limit:disk"),
        limits=SMALL,
    ),
    attack(
        "fill the disk deeper than a path is long",
        DISK,
        "import time\nfor _ in range(25): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "for number in range(10):\n    with open('f%d' % number, 'wb') as file: file.write(bytes(4 << 20))\n"
        "time.sleep(4); say('filled')",
        by("cgroup or watchdog", "limit:disk"),
        limits=SMALL,
    ),
    attack(
        "fill the disk where the owner may not look",
        DISK,
        "import time\nos.mkdir('d')\nfor number in range(10):\n    os.chmod('d', 0o700)\n"
        "    with open('d/f%d' % number, 'wb') as file: file.write(bytes(4 << 20))\n    os.chmod('d', 0)\n"
        "time.sleep(4); say('filled')",
        by("cgroup or watchdog", "limit:disk"),
        limits=SMALL,
    ),
    attack(
        "flood the output",
        OUTPUT,
        "block = b'y' * 65536\nfor _ in range(4000): os.write(1, block)\nsay('flooded')",
        by("output capture", "limit:output", "truncated"),
        limits=SMALL,
    ),
    attack(
        "flood the error output",
        OUTPUT,
        "block = b'y\\n' * 32768\nfor _ in range(4000): os.write(2, block)\nsay('flooded')",
        by("output capture", "limit:output", "truncated"),
        limits=SMALL,
    ),
    attack(
        "hide the limits' breach behind a flood",
        OUTPUT,
        "import time\nif os.fork() == 0:\n    end = time.monotonic() + 6\n"
        "    while time.monotonic() < end: os.write(2, b'x' * 256); time.sleep(0.005)\n    os._exit(0)\n"
        "kept = [bytearray(b'x' * (10 << 20)) for _ in range(15)]\ntime.sleep(5); say('filled')",
        by("cgroup or watchdog", "limit:memory", "truncated"),
        limits=SMALL,
    ),
    attack(
        "print more than is kept",
        OUTPUT,
        "print('head'); os.write(1, b'x' * 300000); print('tail'); say('done')",
        by("output capture", "truncated", "done"),
        limits=SMALL,
    ),
)
