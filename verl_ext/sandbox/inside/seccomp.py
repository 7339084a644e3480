"""A list of allowed system calls as a BPF program, assembled by hand.

No library: the maintained bindings of libseccomp need a C library on the machine, and the program is a chain of
comparisons. The price is a table of numbers per architecture (`syscall_tables.py`). Numbers from <linux/seccomp.h>.

Two filters, since a fork server must fork and a program must not: the server installs `server_filter`, every child
adds the short `child_filter`, and the kernel takes the stricter answer of the two.
"""

import ctypes
import errno
import struct

from verl_ext.sandbox.inside import kernel, syscall_tables

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_MODE_FILTER = 2


def _names(text: str) -> list[str]:
    return text.split()


# What the interpreter, its standard library and numpy need for computing, reading a file and telling the time.
_ALLOWED = _names("""
read write close fstat stat lstat newfstatat statx lseek mmap mprotect munmap mremap madvise brk rt_sigaction
rt_sigprocmask rt_sigreturn sigaltstack pread64 readv writev preadv access faccessat faccessat2 readlink readlinkat
getdents64 getcwd dup dup2 dup3 pipe pipe2 select pselect6 poll ppoll sched_yield sched_getaffinity nanosleep
clock_nanosleep clock_gettime clock_getres gettimeofday time times getpid gettid getppid getuid geteuid getgid getegid
getpgrp getpgid getsid getgroups getresuid getresgid getrusage getrlimit sysinfo uname getrandom futex set_robust_list
get_robust_list set_tid_address rseq arch_prctl exit exit_group restart_syscall fcntl alarm setitimer getitimer pause
rt_sigpending rt_sigtimedwait rt_sigsuspend epoll_create1 epoll_ctl epoll_wait epoll_pwait getcpu membarrier fadvise64
statfs fstatfs umask
""")

# What the fork server needs besides, and no program.
_SERVER_ONLY = _names("""
clone wait4 waitid pidfd_open pidfd_send_signal kill recvmsg sendmsg recvfrom sendto prctl seccomp setsid close_range
prlimit64
""")

# No program computes with these: the process ends at once, which its parent sees as SIGSYS. All that is neither
# allowed nor listed here fails with EPERM, so that a library that only tries something can go on without it.
_KILLED = _names("""
fork vfork execve execveat socket socketpair connect bind listen accept accept4 ptrace process_vm_readv
process_vm_writev pidfd_getfd kcmp mount umount2 pivot_root chroot unshare setns bpf perf_event_open userfaultfd
io_uring_setup init_module finit_module kexec_load keyctl add_key request_key open_by_handle_at
""")

_WRITE_FLAGS = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000  # write-only, read-write, create, truncate, temporary file
_CLONE_THREAD = 0x00010000


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _error(number: int) -> int:
    return _ERROR | number


def _when(number: int, action: int) -> bytes:
    """If the call has this number, answer with `action`."""
    return _instruction(_EQUAL, number, 0, 1) + _instruction(_RETURN, action)


def _when_bits(number: int, argument: int, bits: int, if_set: int, if_clear: int) -> bytes:
    """If the call has this number, answer by the bits of an argument (its lower half, on little-endian machines)."""
    return (
        _instruction(_EQUAL, number, 0, 4)
        + _instruction(_LOAD, _ARGUMENT + 8 * argument)
        + _instruction(_ANY_BIT, bits, 0, 1)
        + _instruction(_RETURN, if_set)
        + _instruction(_RETURN, if_clear)
    )


def _program(architecture: int, body: bytes, default: int) -> bytes:
    # Another architecture's numbers would mean other calls.
    head = (
        _instruction(_LOAD, _ARCHITECTURE)
        + _instruction(_EQUAL, architecture, 1, 0)
        + _instruction(_RETURN, _KILL)
        + _instruction(_LOAD, _NUMBER)
    )
    return head + body + _instruction(_RETURN, default)


def server_filter(architecture: int, numbers: dict[str, int]) -> bytes:
    """Allows what programs and the fork server need; opens files for reading only."""
    known = [name for name in _ALLOWED + _SERVER_ONLY if name in numbers]
    body = b"".join(_when(numbers[name], _ALLOW) for name in known)
    for name, argument in (("openat", 2), ("open", 1)):
        if name in numbers:
            body += _when_bits(numbers[name], argument, _WRITE_FLAGS, _error(errno.EPERM), _ALLOW)
    # "Not a terminal" is what open() and print() ask; ENOSYS makes the C library use clone, whose flags can be seen.
    body += _when(numbers["ioctl"], _error(errno.ENOTTY)) + _when(numbers["clone3"], _error(errno.ENOSYS))
    body += b"".join(_when(numbers[name], _KILL) for name in _KILLED if name in numbers)
    return _program(architecture, body, _error(errno.EPERM))


def child_filter(architecture: int, numbers: dict[str, int]) -> bytes:
    """Takes the fork server's own calls away; a new thread fails, a new process ends the program."""
    body = _when_bits(numbers["clone"], 0, _CLONE_THREAD, _error(errno.EAGAIN), _KILL)
    others = [name for name in _SERVER_ONLY if name in numbers and name != "clone"]
    body += b"".join(_when(numbers[name], _error(errno.EPERM)) for name in others)
    return _program(architecture, body, _ALLOW)


class Filter:
    """A filter ready to be installed, as often as there are children, without allocating anything."""

    def __init__(self, code: bytes) -> None:
        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

        self._code = code
        self._program = Program(len(code) // 8, kernel.address(code))
        self._address = ctypes.addressof(self._program)

    def install(self) -> None:
        """For this process and its descendants, for good; needs no new privileges to be set."""
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
