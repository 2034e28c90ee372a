"""Watches the system calls of a program, its threads and its children: a small strace of our own, since a machine that
runs the tests need not have one. Linux, x86-64 or arm64.

    python tests/counts/tracer.py calls.jsonl -- program arguments…

Writes a line for each call of CALLS when it returns, and ends as the program does. `entered` and `left` are places in
one order of everything that was seen.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import struct
import sys
from pathlib import Path
from typing import TextIO, TypedDict

CALLS = {
    "x86_64": {1: "write", 18: "pwrite64", 42: "connect", 44: "sendto", 46: "sendmsg", 74: "fsync", 75: "fdatasync"},
    "aarch64": {64: "write", 68: "pwrite64", 203: "connect", 206: "sendto", 211: "sendmsg", 82: "fsync",
                83: "fdatasync"},
}  # fmt: skip
DATA_BYTES_MAX = 120
WITH_DATA = ("write", "sendto")

_TRACEME, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000  # sysgood, fork, vfork, clone, exitkill
_ENTRY, _EXIT = 1, 2
_WALL = 0x40000000
_INFO_BYTES = 88


class Line(TypedDict):
    """One system call. `path` is what its descriptor is open on, `data` the beginning of what is written."""

    call: str
    path: str
    data: str
    result: int
    entered: int
    left: int


class Tracer:
    """Follows one program."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._names = CALLS[platform.machine()]
        self._ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self._ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._ptrace.restype = ctypes.c_long
        self._info = ctypes.create_string_buffer(_INFO_BYTES)
        self._under_way: dict[int, Line] = {}
        self._known: set[int] = set()
        self._tick = 0

    def run(self, command: list[str]) -> int:
        """Run the program; its exit code, or 128 and the signal that ended it."""
        child = os.fork()
        if child == 0:
            self._ptrace(_TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.execvp(command[0], command)
        os.waitpid(child, 0)
        if self._ptrace(_SETOPTIONS, child, None, _OPTIONS) != 0:
            raise SystemExit(f"tracer: ptrace is not allowed here ({os.strerror(ctypes.get_errno())})")
        self._known.add(child)
        self._go_on(child, 0)
        while True:
            pid, status = os.waitpid(-1, _WALL)
            if os.WIFSTOPPED(status):
                self._stopped(pid, status)
            elif pid == child:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def _stopped(self, pid: int, status: int) -> None:
        number = os.WSTOPSIG(status)
        deliver = 0
        if number == signal.SIGTRAP | 0x80:
            self._passage(pid)
        elif pid not in self._known:
            self._known.add(pid)  # a new thread or child begins with a stop that is ours
        elif number != signal.SIGTRAP:
            deliver = number
        self._go_on(pid, deliver)

    def _go_on(self, pid: int, number: int) -> None:
        self._ptrace(_SYSCALL, pid, None, number)

    def _passage(self, pid: int) -> None:
        self._tick += 1
        size = self._ptrace(_GET_SYSCALL_INFO, pid, _INFO_BYTES, ctypes.byref(self._info))
        if size <= 0:
            raise SystemExit("tracer: this kernel has no PTRACE_GET_SYSCALL_INFO (it came with Linux 5.3)")
        what = self._info.raw[0]
        if what == _ENTRY:
            number, descriptor, data, count = struct.unpack_from("<QQQQ", self._info.raw, 24)
            if number in self._names:
                self._under_way[pid] = self._line(pid, self._names[number], descriptor, data, count)
        elif what == _EXIT and pid in self._under_way:
            line = self._under_way.pop(pid)
            line["result"], line["left"] = struct.unpack_from("<q", self._info.raw, 24)[0], self._tick
            self._out.write(json.dumps(line) + "\n")

    def _line(self, pid: int, call: str, descriptor: int, data: int, count: int) -> Line:
        try:
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            path = ""
        text = _memory(pid, data, min(count, DATA_BYTES_MAX)) if call in WITH_DATA else ""
        return Line(call=call, path=path, data=text, result=0, entered=self._tick, left=0)


def _memory(pid: int, address: int, count: int) -> str:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(count).decode("utf-8", "replace")


def read_lines(path: Path) -> list[Line]:
    """What was written, in the order of the calls' entries."""
    lines: list[Line] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(lines, key=lambda line: line["entered"])


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        code = Tracer(out).run(sys.argv[3:])
    sys.exit(code)
