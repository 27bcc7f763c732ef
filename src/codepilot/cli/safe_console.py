"""A rich console that no text can control: only rich's own styles and cursor movements reach the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from codepilot.cli.output import SafeStream, plain_lines


class _Styled:
    """The stream as rich writes to it: text is escaped by then."""

    def __init__(self, stream: SafeStream) -> None:
        self._stream = stream
        self.write = stream.write_styled

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class SafeConsole(Console):
    @property
    def file(self) -> IO[str]:
        stream = super().file
        return cast(IO[str], _Styled(stream)) if isinstance(stream, SafeStream) else stream

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain_lines(segment.text), segment.style)
