"""A list of allowed system calls as a BPF program, assembled by hand.

No library: the maintained bindings of libseccomp need a C library on the machine, and the program is a chain of
comparisons. The price is a table of numbers per architecture (`syscall_tables.py`). Numbers from <linux/seccomp.h>.

Two filters, because a fork server must fork and a program must not: the server installs `server_filter`, every child
adds the short `child_filter`, and the kernel applies the stricter of the two.
"""

import ctypes
import errno
import struct

from verl_ext.sandbox.inside import kernel, syscall_tables

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16  # an argument's lower half, on little-endian machines
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_MODE_FILTER = 2
_DENIED = _ERROR | errno.EPERM


def _names(text: str) -> list[str]:
    return text.split()


# System calls that the interpreter, its standard library and numpy need to compute, read a file and get the time. None
# of these can reach another process through its arguments; README.md reviews them call by call.
_ALLOWED = _names("""
read write close fstat stat lstat newfstatat statx lseek mprotect munmap mremap madvise brk rt_sigaction
rt_sigprocmask rt_sigreturn sigaltstack pread64 readv writev preadv access faccessat faccessat2 readlink readlinkat
getdents64 getcwd dup dup2 dup3 pipe pipe2 select pselect6 poll ppoll sched_yield nanosleep gettimeofday time times
getpid gettid getppid getuid geteuid getgid getegid getpgrp getgroups getresuid getresgid getrusage getrlimit sysinfo
uname getrandom set_robust_list set_tid_address rseq arch_prctl exit exit_group restart_syscall alarm setitimer
getitimer pause rt_sigpending rt_sigtimedwait rt_sigsuspend epoll_create1 epoll_ctl epoll_wait epoll_pwait getcpu
statfs fstatfs umask
""")

# Allowed for the fork server, which reads the CPU clocks of its children; a program may only read its own.
_CLOCKS = _names("clock_gettime clock_getres clock_nanosleep")

# Additional calls of the fork server that programs do not need.
_SERVER_ONLY = _names("""
clone wait4 waitid pidfd_open pidfd_send_signal kill recvmsg sendmsg recvfrom sendto prctl seccomp setsid close_range
prlimit64
""")

# No program needs these to compute: the process is killed immediately, which its parent sees as SIGSYS. Calls neither
# allowed nor listed here fail with EPERM, so that a library that only probes for a feature can continue without it.
_KILLED = _names("""
fork vfork execve execveat socket socketpair connect bind listen accept accept4 ptrace process_vm_readv
process_vm_writev pidfd_getfd kcmp mount umount2 pivot_root chroot unshare setns bpf perf_event_open userfaultfd
io_uring_setup init_module finit_module kexec_load keyctl add_key request_key open_by_handle_at
""")

# Allowed fcntl commands: copies, flags, and the program's own locks (traditional and open file description).
_FCNTL_ALLOWED = (0, 1, 2, 3, 5, 6, 7, 36, 37, 38, 1030)
_F_SETFL, _O_ASYNC = 4, 0o20000
# F_SETOWN, F_SETSIG and F_SETOWN_EX: they can make the kernel send any signal to any process of the same user through a
# pipe.
_FCNTL_KILLED = (8, 10, 15)
# Wait, wake, requeue and the like, private or not, with the clock of the timeout. Not the priority-inheriting ones:
# their lock names a thread of any process by its id.
_FUTEX_ALLOWED = tuple(
    call | flags for call in (0, 1, 3, 4, 5, 9, 10) for flags in ((0, 128, 256, 384) if call == 9 else (0, 128))
)
_MAP_HUGETLB = 0x40000  # the machine's own pool of large pages
_OTHERS_CLOCK = 1 << 31  # a negative clock encodes a process id or a descriptor
_WRITE_FLAGS = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000  # write-only, read-write, create, truncate, temporary file
_CLONE_THREAD = 0x00010000


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _when(number: int, action: int) -> bytes:
    """If the call has this number, answer with `action`."""
    return _instruction(_EQUAL, number, 0, 1) + _instruction(_RETURN, action)


def _only_when(number: int, body: bytes) -> bytes:
    """Instructions for the call with this number; they must end with an answer."""
    return _instruction(_EQUAL, number, 0, len(body) // 8) + body


def _by_bits(argument: int, bits: int, if_set: int, if_clear: int) -> bytes:
    """Answer by the bits of an argument."""
    return (
        _instruction(_LOAD, _ARGUMENT + 8 * argument)
        + _instruction(_ANY_BIT, bits, 0, 1)
        + _instruction(_RETURN, if_set)
        + _instruction(_RETURN, if_clear)
    )


def _by_value(argument: int, allowed: tuple[int, ...], otherwise: int) -> bytes:
    """Allow these values of an argument."""
    head = _instruction(_LOAD, _ARGUMENT + 8 * argument)
    return head + b"".join(_when(value, _ALLOW) for value in allowed) + _instruction(_RETURN, otherwise)


def _fcntl() -> bytes:
    """By command; F_SETFL without O_ASYNC, which would make the kernel send signals."""
    set_flags = _only_when(_F_SETFL, _by_bits(2, _O_ASYNC, _KILL, _ALLOW))
    killed = b"".join(_when(command, _KILL) for command in _FCNTL_KILLED)
    head = _instruction(_LOAD, _ARGUMENT + 8)
    return head + set_flags + killed + _by_value(1, _FCNTL_ALLOWED, _DENIED)


# Allowed depending on an argument, which could name another process, a file to write, or a scarce resource.
_BY_ARGUMENT = {
    "futex": _by_value(1, _FUTEX_ALLOWED, _DENIED),
    "mmap": _by_bits(3, _MAP_HUGETLB, _DENIED, _ALLOW),
    "openat": _by_bits(2, _WRITE_FLAGS, _DENIED, _ALLOW),
    "open": _by_bits(1, _WRITE_FLAGS, _DENIED, _ALLOW),
    "fcntl": _fcntl(),
    # For itself, which is 0; another id would reveal other processes.
    **dict.fromkeys(("getpgid", "getsid", "sched_getaffinity"), _by_value(0, (0,), _DENIED)),
}


def _program(architecture: int, body: bytes, default: int) -> bytes:
    # On another architecture the numbers mean other calls.
    head = (
        _instruction(_LOAD, _ARCHITECTURE)
        + _instruction(_EQUAL, architecture, 1, 0)
        + _instruction(_RETURN, _KILL)
        + _instruction(_LOAD, _NUMBER)
    )
    return head + body + _instruction(_RETURN, default)


def server_filter(architecture: int, numbers: dict[str, int]) -> bytes:
    """Allows what programs and the fork server need; opens files for reading only."""
    body = b"".join(_only_when(numbers[name], answer) for name, answer in _BY_ARGUMENT.items() if name in numbers)
    known = [name for name in [*_ALLOWED, *_CLOCKS, *_SERVER_ONLY] if name in numbers]
    body += b"".join(_when(numbers[name], _ALLOW) for name in known)
    # "Not a terminal" answers open() and print(); ENOSYS makes the C library use clone, whose flags can be checked.
    body += _when(numbers["ioctl"], _ERROR | errno.ENOTTY) + _when(numbers["clone3"], _ERROR | errno.ENOSYS)
    body += b"".join(_when(numbers[name], _KILL) for name in _KILLED if name in numbers)
    return _program(architecture, body, _DENIED)


def child_filter(architecture: int, numbers: dict[str, int]) -> bytes:
    """Removes the fork server's own calls; a new thread fails, a new process kills the program."""
    body = _only_when(numbers["clone"], _by_bits(0, _CLONE_THREAD, _ERROR | errno.EAGAIN, _KILL))
    for name in _CLOCKS:
        body += _only_when(numbers[name], _by_bits(0, _OTHERS_CLOCK, _DENIED, _ALLOW))
    body += b"".join(_when(numbers[name], _DENIED) for name in _SERVER_ONLY if name in numbers)
    return _program(architecture, body, _ALLOW)


class Filter:
    """A filter that can be installed repeatedly, for every child, without allocations."""

    def __init__(self, code: bytes) -> None:
        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

        self._code = code
        self._program = Program(len(code) // 8, kernel.address(code))
        self._address = ctypes.addressof(self._program)

    def install(self) -> None:
        """Install it for this process and its descendants, permanently; needs no new privileges to be set."""
        kernel.prctl(kernel.PR_SET_SECCOMP, _MODE_FILTER, self._address)


def filters() -> tuple[Filter, Filter]:
    """The server's and the child's filter for this machine.

    Raises:
        OSError: On an architecture without a table.
    """
    found = syscall_tables.native()
    if found is None:
        raise OSError(f"no table of system calls for this architecture, only for {list(syscall_tables.ARCHITECTURES)}")
    return Filter(server_filter(*found)), Filter(child_filter(*found))
