"""Counts the system calls and the switches of every process of the machine, by thread name and by call, with two small eBPF programs at
the tracepoints sys_enter and sched_switch. Nothing is stopped at a call, as it is under strace. It needs CAP_BPF and CAP_PERFMON, which root has outside of containers."""

import contextlib
import ctypes
import errno
import os
import platform
import re
import struct
from collections import Counter
from pathlib import Path

BPF_CALL_NUMBERS = {"x86_64": 321, "aarch64": 280}
MAP_CREATE, MAP_LOOKUP, MAP_NEXT_KEY, PROGRAM_LOAD, RAW_TRACEPOINT_OPEN = 0, 1, 4, 5, 17
HASH_MAP, RAW_TRACEPOINT = 1, 17
MOST_ENTRIES = 1 << 14
KEY = struct.Struct("=II16s")  # process, what happened, name of the thread
SLEPT, LOST_THE_CORE = 0xFFFF0000, 0xFFFF0001  # switches, among the numbers of calls
SWITCHES = {SLEPT: "switch: sleeps", LOST_THE_CORE: "switch: gives way"}
LICENCE = b"GPL\0"


class CannotCount(Exception):
    """The kernel does not let this process count."""


def _instruction(code, to=0, source=0, offset=0, value=0):
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def _move(to, value):
    return _instruction(0xB7, to, value=value)


def _copy(to, source):
    return _instruction(0xBF, to, source)


def _call(helper):
    return _instruction(0x85, value=helper)


def _of_map(to, map_fd):
    return _instruction(0x18, to, 1, value=map_fd) + _instruction(0)


def _below_frame(to, offset):
    return _copy(to, 10) + _instruction(0x07, to, value=offset)


def _counting(map_fd):
    """Instructions that count what register 7 says, under the current process and thread name, and return."""
    key, one = -24, -32
    insert = (_instruction(0x7A, 10, offset=one, value=1) + _of_map(1, map_fd) + _below_frame(2, key) + _below_frame(3, one)
              + _move(4, 1) + _call(2) + _move(0, 0) + _instruction(0x95))
    add = _move(1, 1) + _instruction(0xDB, 0, 1) + _move(0, 0) + _instruction(0x95)
    return (_call(14) + _instruction(0x77, 0, value=32) + _instruction(0x63, 10, 0, key) + _instruction(0x63, 10, 7, key + 4)
            + _below_frame(1, key + 8) + _move(2, 16) + _call(16) + _of_map(1, map_fd) + _below_frame(2, key) + _call(1)
            + _instruction(0x15, 0, offset=len(add) // 8) + add + insert)


def _calls_program(map_fd):
    return _instruction(0x79, 7, 1, 8) + _counting(map_fd)  # the second argument is the call's number


def _switches_program(map_fd):
    """Of sched_switch's arguments the first says whether the thread was preempted, the fourth its state: 0 if it wants to go on."""
    given_way = ctypes.c_int32(LOST_THE_CORE).value
    return (_instruction(0x79, 2, 1, 0) + _instruction(0x79, 3, 1, 24) + _move(7, given_way) + _instruction(0x57, 2, value=0xFF)
            + _instruction(0x55, 2, offset=2) + _instruction(0x15, 3, offset=1)
            + _move(7, ctypes.c_int32(SLEPT).value) + _counting(map_fd))


def _bpf(command, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    number = BPF_CALL_NUMBERS.get(platform.machine())
    if number is None:
        raise CannotCount(f"counting is not written for {platform.machine()}")
    room = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    result = libc.syscall(number, command, room, len(room))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call_names():
    """Returns {number: name} of this machine's system calls, from the headers of the C library; empty without them."""
    for path in (Path(f"/usr/include/{platform.machine()}-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h")):
        with contextlib.suppress(OSError):
            found = re.findall(r"#define __NR3264_(\w+)\s+(\d+)|#define __NR_(\w+)\s+(\d+)", path.read_text())
            return {int(number or other): name or other_name for name, number, other_name, other in found}
    return {}


class KernelCounts:
    """Counts from its making until close(). Not thread-safe. Raises CannotCount where the kernel does not allow it."""

    def __init__(self):
        self._fds = []
        self._names = {**call_names(), **SWITCHES}
        try:
            self._map = self._keep(_bpf(MAP_CREATE, struct.pack("=IIII", HASH_MAP, KEY.size, 8, MOST_ENTRIES)))
            self._attach("sys_enter", _calls_program(self._map))
            self._attach("sched_switch", _switches_program(self._map))
        except OSError as error:
            self.close()
            raise CannotCount(f"this kernel does not let eBPF programs count here ({error.strerror}): it takes root, or CAP_BPF and "
                              "CAP_PERFMON, outside of a container") from error

    def _keep(self, fd):
        self._fds.append(fd)
        return fd

    def _attach(self, tracepoint, program):
        code, licence = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(LICENCE)
        loaded = self._keep(_bpf(PROGRAM_LOAD, struct.pack("=IIQQ", RAW_TRACEPOINT, len(program) // 8, ctypes.addressof(code),
                                                           ctypes.addressof(licence))))
        name = ctypes.create_string_buffer(tracepoint.encode())
        self._keep(_bpf(RAW_TRACEPOINT_OPEN, struct.pack("=QI", ctypes.addressof(name), loaded)))

    def now(self):
        """Returns {(process, thread's name, call): how often since the counting began}; what a switch is called is in SWITCHES."""
        key, following, value = (ctypes.create_string_buffer(size) for size in (KEY.size, KEY.size, 8))
        counts, has_key = Counter(), False
        while True:
            try:
                _bpf(MAP_NEXT_KEY, struct.pack("=IIQQ", self._map, 0, ctypes.addressof(key) if has_key else 0,
                                               ctypes.addressof(following)))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                return counts
            key.raw, has_key = following.raw, True
            _bpf(MAP_LOOKUP, struct.pack("=IIQQ", self._map, 0, ctypes.addressof(key), ctypes.addressof(value)))
            process, number, thread = KEY.unpack(key.raw)
            name = self._names.get(number, f"call {number}")
            counts[process, thread.split(b"\0", 1)[0].decode(errors="replace"), name] = struct.unpack("=Q", value.raw)[0]

    def close(self):
        """Ends the counting."""
        while self._fds:
            os.close(self._fds.pop())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
