"""System calls without a Python function. Each raises OSError or returns the kernel's result."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.restype = ctypes.c_int

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
MNT_DETACH = 2


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: int) -> int:
    """A call by number, pointers as addresses; `what` names it in the error."""
    # ctypes would pass a plain int as 32 bits.
    return _checked(_libc.syscall(*(ctypes.c_long(value) for value in (number, *arguments))), what)


def prctl(option: int, *values: int) -> int:
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(ctypes.c_int(option), *arguments), f"prctl {option}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _checked(result, f"mount {target}")


def unmount(target: str) -> None:
    _checked(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount2 {target}")


def drop_capabilities() -> None:
    """Empty the permitted, effective and inheritable sets of this process."""

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    class Data(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]

    header, data = Header(0x20080522, 0), (Data * 2)()
    _checked(_libc.capset(ctypes.byref(header), data), "capset")


def address(data: bytes) -> int:
    """Address of the bytes, for `syscall`; the caller keeps them alive."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
