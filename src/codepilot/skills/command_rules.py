"""What each program may be asked to do, as data. Standard library only: this source also runs inside.

A program that is not here is refused. Options are named by all their spellings; how a spelling is recognised
(`--opt=value`, abbreviated, attached, in a cluster of short flags) is `commands`' matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """The rules of one program."""

    options: dict[str, str] = field(default_factory=dict)
    """Refused options, space-separated spellings, each with why and what to do instead."""
    inside: str = ""
    """Options whose value is a path that must lie in the workspace."""
    valued: str = ""
    """Options that take the next argument as their value."""
    flags: str = ""
    """Letters of short options with a value: what follows one in a cluster is no flag."""
    harmless: str = ""
    """Options that are beginnings of refused ones and yet mean something else."""
    words: dict[str, str] = field(default_factory=dict)
    """Refused operands (goals, tasks, targets)."""
    commands: frozenset[str] | None = None
    """The subcommands that may be used, if the program has subcommands."""
    before: str = ""
    """The options that may stand before the subcommand."""
    stops: bool = False
    """Whether what follows `--` is for another program."""
    reads: bool = False
    """Whether its operands are files that it reads."""
    abbreviates: bool = True
    """Whether the beginning of a long option stands for it."""
    loose: bool = False
    """Whether any number of dashes makes a long option."""
    from_file: bool = False
    """Whether `@file` stands for the arguments in a file."""
    hint: str = ""
    """What to do instead of an unlisted subcommand."""


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


STARTS = "it starts another program; run that program itself"
ELSEWHERE = "it takes configuration from elsewhere; the project's own is used"
WRITES = "it writes to a file of your choice; take the output and use write_file"
PUBLISHES = "publishing is not part of a task; leave it to the people who accept the change"
INSTALLS = "packages cannot be installed here; use what the project has"
LISTENS = "nothing can connect to it here; run the tests instead"
ENDLESS = "it would never end; leave the option out"

REFUSED_MODULES: dict[str, str] = {
    **dict.fromkeys(("pip", "ensurepip", "easy_install", "pipx", "uv", "poetry", "conda", "pdm", "hatch"), INSTALLS),
    **dict.fromkeys(("venv", "virtualenv"), "an environment without packages is of no use; the project's is set up"),
    **dict.fromkeys(("http.server", "xmlrpc.server", "socketserver", "smtpd", "wsgiref", "idlelib"), LISTENS),
    **dict.fromkeys(("pty", "telnetlib", "ftplib", "smtplib", "webbrowser"), "there is no terminal and no network"),
    "twine": PUBLISHES,
}
"""What `python -m` may not start; a package's name stands for all below it."""

INSTEAD: dict[str, str] = {
    **dict.fromkeys(
        _set("sh bash zsh dash fish ksh csh cmd powershell pwsh env xargs nohup time timeout watch script exec eval"),
        "there is no shell; run the program itself, and use Python for pipes, loops and variables",
    ),
    "cd": "every command runs in the workspace's root; use paths relative to it",
    "pushd": "every command runs in the workspace's root; use paths relative to it",
    **dict.fromkeys(_set("echo printf pwd whoami date which type export set source"), "use Python: print, os, shutil"),
    **dict.fromkeys(_set("rm rmdir cp mv mkdir touch ln chmod tee dd truncate install"), "use pathlib and shutil"),
    **dict.fromkeys(_set("awk gawk perl ruby tr cut paste jq yq column comm nl tac rev"), "use Python for text"),
    **dict.fromkeys(_set("tree file stat du df realpath basename dirname less more"), "use list_files and read_file"),
    **dict.fromkeys(_set("ag ack fd"), "use search_code and list_files"),
    **dict.fromkeys(_set("patch ed ex vi vim nano emacs"), "use apply_patch or write_file"),
    **dict.fromkeys(_set("pip pip3 uv poetry pipx conda pdm apt apt-get yum dnf apk brew gem bundle"), INSTALLS),
    **dict.fromkeys(_set("curl wget ssh scp rsync nc ncat telnet ftp sftp"), "there is no network"),
    **dict.fromkeys(_set("docker podman kubectl helm systemctl service sudo su doas"), "there is none here"),
    **dict.fromkeys(_set("black isort flake8 pylint unittest"), 'use ["python", "-m", name]'),
    **dict.fromkeys(_set("kill pkill killall"), "stop what you started with its Popen object"),
}
"""What to do instead of programs that are often asked for and not here."""

RUNS_MODULES = _set("runpy pdb cProfile profile trace")
"""Modules of Python that start others by name."""
PYTHON_TOOLS = _set("pytest tox nox ruff mypy coverage")
NODE_TOOLS = _set("tsc jest vitest eslint prettier mocha tsx ts-node ava tap c8 nyc stylelint biome oxlint")
SYSTEM_PLACES = _set("/bin /sbin /usr/bin /usr/sbin /usr/local/bin")
TOOL_PLACES = _set("node_modules/.bin")
WRAPPERS = {"mvnw": "mvn", "gradlew": "gradle"}

JVM_SWITCHES = (
    *("-javaagent", "-agentpath", "-agentlib", "-xx:onerror", "-xx:onoutofmemoryerror", "-xx:flags="),
    *("-xx:vmoptionsfile", "-xbootclasspath", "-xx:startflightrecording"),
)
PROPERTIES = _set(
    "maven.ext.class.path maven.repo.remote maven.multimoduleprojectdirectory maven.home maven.conf"
    " maven.compiler.executable maven.settings settings.security org.apache.maven.global-settings"
    " org.apache.maven.user-settings exec.executable exec.args exec.commandlineargs exec.workingdir jvm"
    " altdeploymentrepository altreleasedeploymentrepository altsnapshotdeploymentrepository gpg.executable"
    " org.gradle.jvmargs org.gradle.java.home org.gradle.native gradle.user.home org.gradle.debug"
    " org.gradle.project.org.gradle.jvmargs systemprop.org.gradle.jvmargs java.ext.dirs java.system.class.loader"
    " java.security.policy java.security.manager java.endorsed.dirs com.sun.management.jmxremote user.home"
)
"""System properties that make a build start, load or fetch something else; those below them count too."""
INSIDE_PROPERTIES = _set("maven.repo.local maven.repo.local.tail outputdirectory project.build.directory")

MAVEN_PHASES = _set(
    "pre-clean clean post-clean validate initialize generate-sources process-sources generate-resources"
    " process-resources compile process-classes generate-test-sources process-test-sources generate-test-resources"
    " process-test-resources test-compile process-test-classes test prepare-package package pre-integration-test"
    " integration-test post-integration-test verify install site"
)
MAVEN_PLUGINS = _set(
    "surefire failsafe surefire-report compiler resources clean jar war help dependency checkstyle pmd spotbugs jacoco"
    " enforcer spotless fmt javadoc source versions flatten license build-helper"
)
MAVEN_GROUPS = _set(
    "org.apache.maven.plugins org.codehaus.mojo org.jacoco com.diffplug.spotless com.github.spotbugs com.spotify.fmt"
)
MAVEN_GOALS = _set("dependency:get dependency:copy dependency:purge-local-repository versions:set versions:commit")
"""Goals of those plugins that fetch, remove or rewrite."""

GRADLE_TASKS = _set(
    "publish publishToMavenLocal publishAllPublicationsToMavenRepository publishMavenPublicationToMavenLocal"
    " publishMavenPublicationToMavenRepository publishPlugins uploadArchives release artifactoryPublish bintrayUpload"
    " closeAndReleaseRepository closeAndReleaseStagingRepository signArchives dockerPush jib deploy wrapper"
)
GRADLE_BEGINNINGS = ("publish", "upload", "release", "deploy")
MAKE_TARGETS = _set("publish deploy release upload push")
MAKE_VARIABLES = _set("SHELL .SHELLFLAGS MAKEFLAGS MAKEFILES MAKE GNUMAKEFLAGS MFLAGS .SHELLSTATUS MAKESHELL")

_NODE_OPTIONS = {
    "--userconfig --globalconfig --registry": ELSEWHERE,
    "--script-shell --shell --editor --git --viewer --node-options --call -c": STARTS,
    "--global -g --location": INSTALLS,
    "--package": "only packages of the project can be run; name the tool itself",
}
_SCRIPTS = dict.fromkeys(("publish", "deploy", "release", "upload"), PUBLISHES)
_GIT_LOOKS = "blame check-ignore describe diff grep log ls-files ls-tree merge-base rev-parse shortlog show status"
_GIT_EDITS = "add apply checkout mv reset restore rm stash"
_GRADLE_FILES = "-p --project-dir -b --build-file -c --settings-file --include-build --project-cache-dir"

PROGRAMS: dict[str, Program] = {
    "python": Program(),
    "pytest": Program(
        inside="-c --config-file --rootdir --confcutdir", flags="cpkmorWn", abbreviates=False, from_file=True
    ),
    "tox": Program(
        options={"-x --override": ELSEWHERE, "--installpkg": INSTALLS},
        inside="-c --conf --root --workdir --work-dir",
        valued="-e --env -c --conf",
        flags="ecf",
        words={"exec": STARTS, "e": STARTS, "devenv": INSTALLS, "d": INSTALLS},
        stops=True,
    ),
    "nox": Program(inside="-f --noxfile --envdir", options={"--install-only": INSTALLS}, stops=True),
    "ruff": Program(
        inside="--config --cache-dir --output-file -o", valued="--select --ignore", abbreviates=False, from_file=True
    ),
    "mypy": Program(
        options={"--python-executable": STARTS, "--install-types": INSTALLS},
        inside="--config-file --cache-dir --junit-xml --custom-typeshed-dir --html-report --xml-report",
        from_file=True,
    ),
    "coverage": Program(inside="--rcfile --data-file"),
    "mvn": Program(
        options={"-s --settings -gs --global-settings -t --toolchains -gt --global-toolchains": ELSEWHERE},
        inside="-f --file -l --log-file",
        valued="-D --define -P --activate-profiles -pl --projects -rf --resume-from -T --threads -b --builder -f --file"
        " -l --log-file -color --color",
        flags="DPTbfl",
        harmless="-nsu -ntp -itr -emp -ep -llr -npr -npu -am -amd -fae -ff -fn -cpu -rf -pl -color -N -X -U -V -B -C",
        loose=True,
    ),
    "gradle": Program(
        options={
            "-I --init-script -g --gradle-user-home": ELSEWHERE,
            "--scan": PUBLISHES,
            "-t --continuous": ENDLESS,
            "--write-verification-metadata -M": "it changes what the build trusts; leave that to people",
        },
        inside=_GRADLE_FILES,
        valued=f"-x --exclude-task -D --system-prop -P --project-prop --tests --console --max-workers {_GRADLE_FILES}",
        flags="xDPpbc",
        abbreviates=False,
    ),
    "java": Program(from_file=True),
    "javac": Program(
        options={"-Xplugin:": STARTS},
        inside="-d -s -h --processor-path -processorpath",
        abbreviates=False,
        from_file=True,
    ),
    "node": Program(
        options={"--inspect --inspect-brk --inspect-port --inspect-wait --debug-port": LISTENS},
        inside="--env-file",
        abbreviates=False,
    ),
    "npm": Program(
        options=_NODE_OPTIONS,
        inside="--prefix -C",
        commands=_set("test t tst run run-script rum urn ls list la ll explain why root prefix query help"),
        before="--silent -s --quiet -q --offline",
        harmless="-s --s -l --l -d -q -p",
        words=_SCRIPTS,
        loose=True,
        stops=True,
        hint='use ["npm", "test"] or ["npm", "run", script]',
    ),
    "yarn": Program(
        options={**_NODE_OPTIONS, "--use-yarnrc --cwd": ELSEWHERE},
        commands=_set("test run why list info build lint check typecheck") | NODE_TOOLS,
        before="--silent -s --offline",
        harmless="-s --s -l --l",
        words=_SCRIPTS,
        loose=True,
        stops=True,
        hint='use ["yarn", "run", script]',
    ),
    "pnpm": Program(
        options={**_NODE_OPTIONS, "--dir -C": ELSEWHERE},
        commands=_set("test t run run-script why list ls build lint check typecheck") | NODE_TOOLS,
        before="--silent -s --offline -r --recursive",
        harmless="-s --s -l --l",
        words=_SCRIPTS,
        loose=True,
        stops=True,
        hint='use ["pnpm", "run", script]',
    ),
    "npx": Program(
        options={"--package -p --call -c --yes -y --node-options --registry --userconfig": INSTALLS},
        commands=NODE_TOOLS,
        before="--no --no-install --offline --quiet -q",
        loose=True,
        hint="npx fetches what the project lacks; name one of its own tools",
    ),
    "cargo": Program(
        options={"--config -Z": ELSEWHERE, "--registry --index": INSTALLS},
        inside="--manifest-path --target-dir --out-dir --artifact-dir",
        commands=_set("build b check c test t run r bench doc d clippy fmt tree metadata clean version nextest"),
        before="-q --quiet -v --verbose --offline --locked --frozen",
        abbreviates=False,
        stops=True,
        hint='use ["cargo", "test"], build, check or clippy; the toolchain is the one there is',
    ),
    "go": Program(
        options={
            "--toolexec --exec --vettool --compiler --gccgoflags": STARTS,
            "--C": "it changes the directory; name packages from the root",
        },
        inside="--overlay --modfile --o --pkgdir --coverprofile --outputdir",
        abbreviates=False,
        loose=True,
        commands=_set("build test vet fmt list run doc version env mod help"),
        hint='use ["go", "test", "./..."], build, vet, list or run of the project',
    ),
    "make": Program(
        options={"--eval -E": STARTS},
        inside="-f --file --makefile -C --directory -I --include-dir -o --old-file -W",
        flags="fCIoWjlE",
        words=dict.fromkeys(MAKE_TARGETS, PUBLISHES),
    ),
    "git": Program(
        options={
            "--ext-diff --textconv --filters --open-files-in-pager --upload-pack --receive-pack --exec": STARTS,
            "--output --build-fake-ancestor": WRITES,
            "--no-index --contents --unsafe-paths": "it leads out of the repository; use diff or read_file",
        },
        inside="--exclude-from --pathspec-from-file --ignore-revs-file",
        harmless="--text --no --exclude --ignore-revs",
        commands=_set(f"{_GIT_LOOKS} {_GIT_EDITS}"),
        before="--no-pager -P --no-optional-locks --literal-pathspecs",
        reads=True,
        hint=f"these may be used: {', '.join(sorted(_set(f'{_GIT_LOOKS} {_GIT_EDITS}')))}",
    ),
    "find": Program(
        options={
            "-exec -execdir -ok -okdir": "it starts programs; loop over list_files() instead",
            "-delete": "it deletes whatever matches; delete the files you mean with apply_patch or pathlib",
            "-fprint -fprint0 -fprintf -fls": WRITES,
            "-files0-from": "name the directories as arguments",
        },
        abbreviates=False,
        reads=True,
    ),
    "sed": Program(
        options={
            "-i --in-place": "files are changed with apply_patch or write_file, so that every change is seen",
            "-f --file": "its commands cannot be judged before they run; give them with -e",
        },
        valued="-e --expression -l --line-length",
        flags="efl",
        harmless="--s",
        reads=True,
    ),
    "sort": Program(
        options={
            "--compress-program": STARTS,
            "-o --output": WRITES,
            "-T --temporary-directory": "the sandbox has one already",
            "--files0-from": "name the files as arguments",
        },
        valued="-k --key -S --buffer-size -t --field-separator --batch-size --parallel --sort --random-source",
        flags="kStTo",
        reads=True,
    ),
    "uniq": Program(valued="-f --skip-fields -s --skip-chars -w --check-chars", flags="fsw", reads=True),
    "tail": Program(
        options={"-f -F --follow --retry --pid": ENDLESS}, valued="-n --lines -c --bytes -s", flags="ncs", reads=True
    ),
    "head": Program(valued="-n --lines -c --bytes", flags="nc", reads=True),
    "wc": Program(options={"--files0-from": "name the files as arguments"}, reads=True),
    "rg": Program(
        options={"--pre --hostname-bin": STARTS},
        valued="-e --regexp -g --glob -t --type -T --type-not -A -B -C -m --max-count -r --replace -d --max-depth -j"
        " -E --encoding -M --iglob --sort --sortr --max-filesize --color --colors --engine",
        flags="eEgtTABCmrdjMf",
        inside="-f --file --ignore-file",
        abbreviates=False,
        reads=True,
    ),
    "grep": Program(
        valued="-e --regexp -A -B -C -m --max-count -d -D --include --exclude --exclude-dir --color",
        inside="-f --file --exclude-from",
        flags="eABCmdDf",
        harmless="--exclude",
        reads=True,
    ),
    "diff": Program(
        valued="-U -C -I -x --exclude -F -W --label -L", inside="--to-file --from-file -X", flags="UCIxFWLX", reads=True
    ),
    "cat": Program(reads=True),
    "ls": Program(valued="-I --ignore -w -T", reads=True),
    "tsc": Program(inside="--outDir --outFile --project -p --build", abbreviates=False, loose=True, from_file=True),
    **dict.fromkeys(("jest", "vitest", "eslint"), Program(inside="--config", abbreviates=False)),
}
PATTERN_FIRST = _set("rg grep sed")
"""Programs whose first operand is a pattern or a script, unless an option gave it."""
