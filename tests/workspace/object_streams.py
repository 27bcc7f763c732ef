"""Object streams and stores to test with, honest and forged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from codepilot.workspace import Entry, ObjectStore
from codepilot.workspace.pack import object_id
from codepilot.workspace.transfer import Member, Role, Title, write_stream


def stored(objects: ObjectStore, count: int = 40) -> str:
    oids = objects.write_blobs(b"content %d\n" % number * (number % 7) for number in range(count))
    entries = {f"d{number % 5}/s{number % 3}/f{number}": Entry("100644", oid) for number, oid in enumerate(oids)}
    entries["odd\udcff\n name"] = Entry("100755", oids[0])
    entries["link"] = Entry("120000", objects.write_blob(b"d0"))
    return objects.write_tree(entries)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def contents(store: ObjectStore) -> list[str]:
    """Every file of a store, so that a refusal can be seen to have left nothing."""
    return sorted(str(path.relative_to(store.path)) for path in store.path.rglob("*") if path.is_file())


def raw(role: Role, root: str, members: Iterable[Member], **fields: object) -> bytes:
    return b"".join(write_stream(Title(root, role, **fields).encode(), members))  # type: ignore[arg-type]


def blob(data: bytes) -> Member:
    return Member("blob", object_id("blob", data), len(data), [data])


def tree(data: bytes) -> Member:
    return Member("tree", object_id("tree", data), len(data), [data])


def row(mode: bytes, name: bytes, oid: str) -> bytes:
    return mode + b" " + name + b"\0" + bytes.fromhex(oid)


def record(root: str, manifest: str, mode: bytes = b"755") -> Member:
    return blob(b"codepilot snapshot 1\n%s\n%s\n%s\n" % (root.encode(), manifest.encode(), mode))
