#!/usr/bin/python3
"""Runs a program as a kernel without Landlock does: without_landlock.py PROGRAM [ARGUMENTS]. A filter of system calls answers for
the one by which programs ask for it."""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LANDLOCK_CREATE_RULESET = 444  # on all architectures
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def main():
    instructions = ((LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, LANDLOCK_CREATE_RULESET), (RETURN, 0, 0, ERRNO | errno.ENOSYS),
                    (RETURN, 0, 0, ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in instructions))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described):
        sys.exit(f"{sys.argv[0]}: this kernel takes no filter: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
