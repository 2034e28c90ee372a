"""From a URL to a store: `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`.

Refuses the places where SQLite's locks and syncs do not hold: Windows until it is proven, and network file systems.
The driver for PostgreSQL is loaded for such a URL only: it is an extra, and takes its time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from surefoot.doors import Doors
from surefoot.errors import InvalidInput, StoreUnsupported
from surefoot.store.port import Store
from surefoot.store.sqlite import SqliteStore

_PREFIX = "sqlite:///"
_FROZEN = "sqlite+ro:///"
_POSTGRES = ("postgresql://", "postgres://")
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afp\w*|9p|ncpfs|webdav|davfs|ftp|afs|ceph|coda|lustre|gpfs|beegfs|orangefs|pvfs2|glusterfs|gfs2|ocfs2"
    r"|macfuse|osxfuse|fuse\.(?:sshfs|glusterfs|ceph\w*|s3fs|rclone|gcsfuse|juicefs|goofys|davfs\w*|smb\w*|nfs\w*)"
)
_MACOS_MOUNT = re.compile(r"^.* on (?P<place>/.*) \((?P<kind>[^,)]+)")
_OCTAL = re.compile(r"\\([0-7]{3})")


async def open_store(url: str, doors: Doors) -> Store:
    """Open, create or upgrade the store at `url`.

    Raises InvalidInput for a URL that is not understood, StoreUnsupported (network file system, newer schema, another
    program's file, platform, a server that may lose what it has acknowledged, no driver), StoreUnavailable (no
    directory, no permission, locked, no server), Unreadable (damaged).
    """
    if url.startswith(_POSTGRES):
        return await _open_postgres(url, doors)
    path = sqlite_path(url)
    if sys.platform == "win32":
        raise StoreUnsupported(
            "surefoot does not run on Windows yet: use Linux, macOS or WSL 2 (on its own file system)"
        )
    refuse_network(path, mount_table())
    store = SqliteStore(path, doors.clock, doors.hook, frozen=url.startswith(_FROZEN))
    await store.open()
    return store


async def _open_postgres(url: str, doors: Doors) -> Store:
    try:
        from surefoot.store.postgres import PostgresStore
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        raise StoreUnsupported("PostgreSQL needs a driver: pip install 'surefoot[postgres]'") from missing
    store = PostgresStore(url, doors.clock, doors.hook)
    await store.open()
    return store


def frozen_url(url: str) -> str:
    """The same store for reading alone: nothing is written, not even beside the file."""
    return _FROZEN + url.removeprefix(_PREFIX)


def sqlite_path(url: str) -> str:
    """The absolute path in a URL. Raises InvalidInput."""
    if url.startswith(_FROZEN):
        url = _PREFIX + url.removeprefix(_FROZEN)
    if not url.startswith(_PREFIX) or url == _PREFIX or "?" in url or ":memory:" in url or "\0" in url:
        # What stands behind the scheme of another kind of URL may hold a password.
        shown = url if "@" not in url else url.partition(":")[0] + ":…"
        raise InvalidInput(
            f"store {shown!r}: write sqlite:///relative.db, sqlite:////absolute.db or postgresql://user@host/database, "
            "a password behind the user as :password"
        )
    return os.path.abspath(url.removeprefix(_PREFIX))


def mount_table() -> list[tuple[str, str]]:
    """(mount point, file system type), in the order of mounting."""
    if sys.platform == "darwin":
        out = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=True)
        return macos_mounts(out.stdout)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return linux_mounts(table.read())
    except FileNotFoundError:
        return []


def linux_mounts(mountinfo: str) -> list[tuple[str, str]]:
    """The mounts of /proc/self/mountinfo."""
    mounts: list[tuple[str, str]] = []
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        place = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields.split(" ")[4])
        mounts.append((place, kind.split(" ")[0]))
    return mounts


def macos_mounts(text: str) -> list[tuple[str, str]]:
    """The mounts that macOS's `mount` lists."""
    found = (_MACOS_MOUNT.match(line) for line in text.splitlines())
    return [(match["place"], match["kind"]) for match in found if match is not None]


def refuse_network(path: str, mounts: list[tuple[str, str]]) -> None:
    """Raises StoreUnsupported if the directory of `path` lies on a network file system."""
    folder = os.path.realpath(os.path.dirname(path))
    place, kind = "/", ""
    for mounted, mounted_kind in mounts:
        inside = folder == mounted or folder.startswith(mounted.rstrip("/") + "/")
        # Of two mounts on one place the later one is seen.
        if inside and len(mounted) >= len(place):
            place, kind = mounted, mounted_kind
    if _NETWORK.fullmatch(kind):
        raise StoreUnsupported(
            f"{path} is on a network file system ({kind} at {place}), where SQLite's locks and syncs do not hold. "
            "Put the store on a local disk"
        )
