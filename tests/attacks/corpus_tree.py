"""What an agent can leave in its tree for the host to stumble over, or send it as a patch."""

# ruff: noqa: E501  (programs are data)
from __future__ import annotations

from attack_kit import MB, Attack, attack, by

from codepilot.sandbox import Limits

LINKS, GIT, ODD, ARCHIVE = "symlinks and hard links", ".git", "odd trees", "archive traversal"
LIMITS = Limits(wall_sec=20, memory_bytes=256 * MB, disk_bytes=128 * MB)


def tree(name: str, category: str, program: str, *signs: str, layer: str = "snapshot walk", reads: str = "") -> Attack:
    """`reads` are files that the host then asks for."""
    return attack(name, category, program, by(layer, *signs), kind="tree", limits=LIMITS, then=reads)


def patch(name: str, *paths: str) -> Attack:
    program = "".join(f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+planted\n" for path in paths)
    return attack(name, ARCHIVE, program, by("patch check", "PathError", "PatchError", "PolicyError"), kind="patch")


TREES: tuple[Attack, ...] = (
    tree(
        "swap a file for a link out",
        LINKS,
        'os.unlink("README"); os.symlink(T["secret"], "README")',
        "rule:symlink_leaves_tree",
        "failure:path_not_found",
        reads="README",
    ),
    tree(
        "swap a directory for a link out",
        LINKS,
        'os.rename("pkg", "old"); os.symlink(T["outside"], "pkg")',
        "rule:symlink_leaves_tree",
        "failure:path_not_found",
        reads="pkg/secret.txt",
    ),
    tree(
        "lead out by way of two links",
        LINKS,
        'os.symlink("..", "pkg/up"); os.symlink("pkg/up/../../r-2/tree/notes.txt", "n")',
        "rule:symlink_leaves_tree",
        "failure:path_not_found",
        reads="n",
    ),
    tree(
        "link into the repository",
        LINKS,
        'os.symlink(".git/config", "config")',
        "rule:symlink_leaves_tree",
        "failure:path_not_found",
        reads="config",
    ),
    tree(
        "link a file to itself twice",
        LINKS,
        'os.link("README", "again")',
        "rule:hard_link",
        "failure:policy_violation",
        reads="again",
    ),
    tree(
        "link in a circle",
        LINKS,
        'os.symlink("b", "a"); os.symlink("a", "b")',
        "rule:symlink_leaves_tree",
        "failure:path_not_found",
        reads="a",
    ),
    tree(
        "swap links while the host looks",
        LINKS,
        "import time\nif os.fork() == 0:\n    os.setsid()\n    end = time.monotonic() + 3\n    while time.monotonic() < end:\n"
        '        os.symlink(T["secret"], "s"); os.replace("s", "README"); open("p", "w").close(); os.replace("p", "README")\n'
        "time.sleep(0.2)",
        "rule:symlink_leaves_tree",
        "failure:path_not_found",
        "read",
        layer="tree end",
        reads="README",
    ),
    tree(
        "nest a repository with a monitor program",
        GIT,
        'os.makedirs("sub/.git"); open("sub/.git/config", "w").write("[core]\\nfsmonitor = touch " + T["outside"] + "/ran")',
        "rule:nested_git",
        "failure:path_not_found",
        reads="sub/.git/HEAD",
    ),
    tree(
        "point a repository file outside",
        GIT,
        'os.mkdir("sub"); open("sub/.git", "w").write("gitdir: " + T["outside"])',
        "rule:nested_git",
    ),
    tree(
        "write a repository's name another way",
        GIT,
        'os.makedirs("a/.GIT/hooks"); os.makedirs("b/.git "); os.makedirs("c/git~1")',
        "rule:nested_git",
    ),
    tree(
        "plant hooks, filters and submodules",
        GIT,
        'os.makedirs(".git/hooks")\nfor name in ("pre-commit", "post-checkout"):\n'
        '    open(".git/hooks/" + name, "w").write("#!/bin/sh\\ntouch " + T["outside"] + "/ran"); os.chmod(".git/hooks/" + name, 0o755)\n'
        'open(".git/config", "w").write("[core]\\nfsmonitor = touch " + T["outside"] + "/ran\\n[filter \\"x\\"]\\nclean = touch " + T["outside"] + "/ran\\n")\n'
        'open(".gitattributes", "w").write("* filter=x diff=x\\n")\n'
        'open(".gitmodules", "w").write("[submodule \\"x\\"]\\npath = x\\nurl = ext::touch " + T["outside"] + "/ran\\n")',
        "failure:tool_invalid_args",
        layer="workspace",
        reads=".git/config",
    ),
    tree(
        "replace the repository by a link",
        GIT,
        'os.symlink(T["outside"], ".git")',
        "failure:tool_invalid_args",
        layer="workspace",
        reads=".git/secret.txt",
    ),
    tree(
        "leave a pipe that blocks its reader",
        ODD,
        'os.mkfifo("fifo")',
        "rule:special_file",
        "failure:path_not_found",
        reads="fifo",
    ),
    attack(
        "leave a socket",
        ODD,
        'import socket\ntry: socket.socket(socket.AF_UNIX).bind("s")\nexcept OSError: pass',
        by("snapshot walk", "rule:special_file", "failure:path_not_found"),
        by("seccomp", "failure:path_not_found"),
        kind="tree",
        limits=LIMITS,
        then="s",
    ),
    tree("nest directories without end", ODD, 'for _ in range(1500): os.mkdir("d"); os.chdir("d")', "rule:too_deep"),
    tree(
        "leave directories that may not be entered",
        ODD,
        'os.mkdir("x"); open("x/f", "w").close(); os.chmod("x", 0o444)\nos.makedirs("y/z"); os.chmod("y", 0)',
        "rule:unreadable",
        "none",
        layer="workspace",
    ),
    tree(
        "use names that are no text",
        ODD,
        'open(b"\\xff\\n\\x1b[31m", "w").close(); open("a\\nb", "w").close(); os.mkdir("-rf"); open("n" * 255, "w").close()',
        "none",
        layer="workspace",
    ),
    tree(
        "leave a file of a terabyte without content",
        ODD,
        'fd = os.open("sparse", os.O_CREAT | os.O_RDWR)\ntry: os.ftruncate(fd, 1 << 40)\nexcept OSError: os.ftruncate(fd, 200 << 20)\n',
        "none",
        "failure:policy_violation",
        "failure:tool_invalid_args",
        layer="workspace",
        reads="sparse",
    ),
    tree(
        "leave twenty thousand files",
        ODD,
        'os.mkdir("many")\nfor n in range(4000): os.close(os.open("many/%d" % n, os.O_CREAT | os.O_WRONLY))',
        "none",
        layer="workspace",
    ),
    tree(
        "make its own root unreadable",
        ODD,
        'os.chmod(".", 0)',
        "none",
        "rule:unreadable",
        "failure:path_not_found",
        "error",
        layer="workspace",
    ),
    tree(
        "replace files by directories and back",
        ODD,
        'os.unlink("README"); os.makedirs("README/deep"); os.unlink("pkg/mod.py"); os.rmdir("pkg"); open("pkg", "w").close()',
        "none",
        "failure:path_not_found",
        layer="workspace",
        reads="README",
    ),
    patch("patch outside with ..", "../planted", "pkg/../../planted"),
    patch("patch an absolute path", "/tmp/planted", "//etc/planted"),
    patch("patch the repository", ".git/hooks/pre-commit", "pkg/.git/config", ".GIT/config"),
    patch("patch through a link", "out/planted", "out/secret.txt"),
    tree(
        "unpack an archive that climbs out",
        ARCHIVE,
        'import io, tarfile\ndata = io.BytesIO()\nwith tarfile.open(fileobj=data, mode="w") as tar:\n'
        '    for name in ("../../../outside/planted", T["outside"] + "/planted", "../planted"):\n'
        "        info = tarfile.TarInfo(name); info.size = 1; tar.addfile(info, io.BytesIO(b'x'))\n"
        "data.seek(0)\nfor member in tarfile.open(fileobj=data):\n"
        "    try: tarfile.open(fileobj=io.BytesIO(data.getvalue())).extract(member, '.')\n"
        "    except OSError as error: say(errno.errorcode[error.errno])",
        "none",
        layer="workspace",
    ),
    tree(
        "unpack an archive through a link",
        ARCHIVE,
        'import io, zipfile, tarfile\nos.symlink(T["outside"], "out")\ndata = io.BytesIO()\nwith tarfile.open(fileobj=data, mode="w") as tar:\n'
        "    info = tarfile.TarInfo('out/planted'); info.size = 1; tar.addfile(info, io.BytesIO(b'x'))\ndata.seek(0)\n"
        "try: tarfile.open(fileobj=data).extractall('.')\nexcept OSError as error: say(errno.errorcode[error.errno])",
        "rule:symlink_leaves_tree",
    ),
    *(
        attack(name, "terminal injection", text, by("text cleaning", "plain"), kind="text")
        for name, text in (
            ("colour and move the cursor", "\x1b[31mred\x1b[2J\x1b[H\x1b[999D"),
            ("write to the clipboard", "\x1b]52;c;ZXZpbA==\x07"),
            ("make a false link and title", "\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\ \x1b]0;title\x07"),
            ("overwrite the line", "failed\rpassed \b\b\b\x7f"),
            ("reverse the reading order", "safe\u202egnp.exe\u2066\u2069\u200b\u200f"),
            ("use eight-bit controls", "\x9b31m\x9d0;title\x9c\x90\x98\x85\u2028"),
            ("ask the terminal to answer", "\x1b[6n\x1b[c\x05\x1bP$q\x1b\\"),
        )
    ),
)
