"""Policy, system call filters of both architectures, and that nothing runs with less than promised."""

import errno
import re
import struct
from pathlib import Path

import pytest

from verl_ext.core.errors import ConfigError
from verl_ext.sandbox import policy
from verl_ext.sandbox.inside import landlock, seccomp, syscall_tables
from verl_ext.sandbox.policy import LAYERS, LEVELS, SandboxPolicy, SandboxUnavailableError, missing_layers
from verl_ext.sandbox.pool import SandboxPool

README = Path(seccomp.__file__).parents[1] / "README.md"
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
MACHINES = list(syscall_tables.ARCHITECTURES)


def _run_bpf(code: bytes, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would answer: the four instructions of classic BPF that the filters use."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    program = list(struct.iter_unpack("=HBBI", code))
    accumulator, position = 0, 0
    while True:
        operation, if_true, if_false, value = program[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x15:
            position += if_true if accumulator == value else if_false
        elif operation == 0x45:
            position += if_true if accumulator & value else if_false
        else:
            assert operation == 0x06
            return value


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> tuple[int, dict[str, int]]:
    return syscall_tables.ARCHITECTURES[request.param]


def _answer(machine: tuple[int, dict[str, int]], name: str, *arguments: int) -> int:
    """The stricter answer of both filters: an error is a lower number than ALLOW, and KILL is above bit 31."""
    architecture, numbers = machine
    answers = [
        _run_bpf(make(architecture, numbers), architecture, numbers[name], arguments)
        for make in (seccomp.server_filter, seccomp.child_filter)
    ]
    return KILL if KILL in answers else min(answers)


@pytest.mark.parametrize("name", ["read", "write", "mmap", "brk", "exit_group", "getrandom", "futex", "rt_sigreturn"])
def test_a_program_may_compute(machine: tuple[int, dict[str, int]], name: str):
    assert _answer(machine, name) == ALLOW


@pytest.mark.parametrize(
    "name", ["socket", "execve", "ptrace", "mount", "unshare", "bpf", "process_vm_readv", "io_uring_setup", "keyctl"]
)
def test_what_only_an_attack_does_ends_it(machine: tuple[int, dict[str, int]], name: str):
    assert _answer(machine, name) == KILL


@pytest.mark.parametrize(
    "name",
    ["kill", "tgkill", "pidfd_open", "prctl", "seccomp", "sendmsg", "recvmsg", "prlimit64", "setsid", "memfd_create"],
)
def test_other_calls_fail(machine: tuple[int, dict[str, int]], name: str):
    assert _answer(machine, name) == ERROR | errno.EPERM


def test_a_process_ends_the_program_and_a_thread_fails(machine: tuple[int, dict[str, int]]):
    assert _answer(machine, "clone", 17) == KILL
    assert _answer(machine, "clone", 0x00010000 | 0x100) == ERROR | errno.EAGAIN
    assert _answer(machine, "clone3") == ERROR | errno.ENOSYS


def test_files_are_opened_for_reading_only(machine: tuple[int, dict[str, int]]):
    assert _answer(machine, "openat", 0, 0, 0o2000000) == ALLOW
    for flags in (0o1, 0o2, 0o100, 0o1000, 0o20200000):
        assert _answer(machine, "openat", 0, 0, flags) == ERROR | errno.EPERM


COMMANDS_OF_FCNTL = {
    ALLOW: (0, 1, 2, 3, 5, 6, 7, 36, 37, 38, 1030),  # copies, flags, locks
    KILL: (8, 10, 15),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    # F_GETOWN, F_GETSIG, F_GETOWN_EX, owner's ids, leases, F_NOTIFY, cancelled locks, pipe sizes, seals, hints, unknown
    ERROR | errno.EPERM: (9, 11, 16, 17, 1024, 1025, 1026, 1029, 1031, 1032, 1033, 1034, 1035, 1036, 9999),
}


@pytest.mark.parametrize("answer", COMMANDS_OF_FCNTL)
def test_fcntl_does_what_it_does_to_the_program_alone(machine: tuple[int, dict[str, int]], answer: int):
    found = {command: _answer(machine, "fcntl", 0, command, 0o20000) for command in COMMANDS_OF_FCNTL[answer]}
    assert found == dict.fromkeys(found, answer)


def test_a_descriptor_is_not_made_to_send_signals(machine: tuple[int, dict[str, int]]):
    nonblock, append, asynchronous = 0o4000, 0o2000, 0o20000
    assert _answer(machine, "fcntl", 0, 4, nonblock | append) == ALLOW
    assert _answer(machine, "fcntl", 0, 4, asynchronous) == KILL
    assert _answer(machine, "fcntl", 0, 4, nonblock | asynchronous) == KILL
    assert _answer(machine, "ioctl", 0, 0x5452) == ERROR | errno.ENOTTY  # FIOASYNC


def test_a_call_that_names_a_process_names_the_program_itself(machine: tuple[int, dict[str, int]]):
    for name in ("getpgid", "getsid", "sched_getaffinity"):
        assert _answer(machine, name, 0) == ALLOW
        assert _answer(machine, name, 1) == ERROR | errno.EPERM
    for name in ("clock_gettime", "clock_getres", "clock_nanosleep"):
        for own in (0, 1, 2, 3, 7):
            assert _answer(machine, name, own) == ALLOW
        for other in ((~4321 << 3) | 2, (~5 << 3) | 3):  # the clock of a process, of a descriptor
            assert _answer(machine, name, other % 2**32) == ERROR | errno.EPERM


def test_a_futex_waits_and_wakes_and_lends_no_priority(machine: tuple[int, dict[str, int]]):
    private, realtime = 128, 256
    for call in (0, 1, 3, 4, 5, 9, 10):
        assert _answer(machine, "futex", 0, call) == _answer(machine, "futex", 0, call | private) == ALLOW
    assert _answer(machine, "futex", 0, 9 | private | realtime) == ALLOW
    for call in (2, 6, 7, 8, 11, 12, 13):
        for flags in (0, private, realtime, private | realtime):
            assert _answer(machine, "futex", 0, call | flags) == ERROR | errno.EPERM


def test_memory_is_not_taken_from_the_machines_large_pages(machine: tuple[int, dict[str, int]]):
    assert _answer(machine, "mmap", 0, 4096, 3, 0x22) == ALLOW
    assert _answer(machine, "mmap", 0, 4096, 3, 0x22 | 0x40000) == ERROR | errno.EPERM


def test_the_readme_has_a_verdict_on_every_call_that_is_allowed():
    text = README.read_text().split("## System calls")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    allowed = [*seccomp._ALLOWED, *seccomp._BY_ARGUMENT, *seccomp._CLOCKS, *seccomp._SERVER_ONLY, "ioctl", "clone3"]
    assert sorted(named) == sorted(allowed)


def test_unknown_calls_fail_and_foreign_ones_end_the_program(machine: tuple[int, dict[str, int]]):
    architecture, numbers = machine
    code = seccomp.server_filter(architecture, numbers)
    assert _run_bpf(code, architecture, 9999) == ERROR | errno.EPERM
    assert _run_bpf(code, architecture, 0x40000000 + numbers["read"]) == ERROR | errno.EPERM
    assert _run_bpf(code, architecture ^ 1, numbers["read"]) == KILL


def test_no_call_has_two_answers():
    lists = seccomp._ALLOWED, seccomp._BY_ARGUMENT, seccomp._CLOCKS, seccomp._SERVER_ONLY, seccomp._KILLED
    names = [name for group in lists for name in group]
    assert len(names) == len(set(names))
    for _, numbers in syscall_tables.ARCHITECTURES.values():
        assert len(set(numbers.values())) == len(numbers)
    x86_only = {
        "stat",
        "lstat",
        "access",
        "readlink",
        "dup2",
        "pipe",
        "select",
        "poll",
        "time",
        "getpgrp",
        "arch_prctl",
    }
    x86_only |= {"alarm", "pause", "epoll_wait", "fork", "vfork", "open"}
    assert not set(names) - set(syscall_tables.X86_64)
    assert set(names) - set(syscall_tables.AARCH64) == x86_only


def test_an_architecture_without_a_table_has_no_filter(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(syscall_tables.platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no table of system calls"):
        seccomp.filters()


def test_landlock_says_what_its_version_lacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    report = landlock.restrict(["/"], [], True, True, True)
    assert all(state.startswith("unavailable: needs Landlock ABI") for state in report.values())
    assert list(report) == ["landlock_files", "landlock_network", "landlock_scopes"]


def test_full_asks_for_every_layer():
    complete = dict.fromkeys(LAYERS, "ok")
    assert missing_layers(complete, "full") == []
    for layer in LAYERS:
        assert missing_layers({**complete, layer: "unavailable: test"}, "full") == [f"{layer} (unavailable: test)"]
        assert missing_layers({key: "ok" for key in LAYERS if key != layer}, "full") == [f"{layer} (not reported)"]


@pytest.mark.parametrize(
    "left_out",
    [{"seccomp"}, {"rlimits"}, {"no_privileges"}, {"new_root", "landlock_files"}, {"namespaces", "landlock_files"}],
)
def test_nothing_runs_with_less_than_the_minimum(left_out: set[str]):
    with pytest.raises(SandboxUnavailableError, match=r"require=minimum cannot be met.*left out"):
        SandboxPool(SandboxPolicy(leave_out=frozenset(left_out)), workers=1)


@pytest.mark.parametrize("layer", LAYERS)
def test_full_refuses_to_run_without_any_one_layer(layer: str):
    with pytest.raises(SandboxUnavailableError, match=rf"{layer} \(unavailable"):
        SandboxPool(SandboxPolicy(require="full", leave_out=frozenset({layer})), workers=1)


def test_a_server_that_comes_back_with_less_is_refused(monkeypatch: pytest.MonkeyPatch):
    with SandboxPool(workers=1) as pool:
        monkeypatch.setitem(LEVELS, "minimum", (("a layer that vanished",),))
        pool._discard(pool._take(""))
        with pytest.raises(SandboxUnavailableError, match="a layer that vanished"):
            pool.run("def solve(g): return g", [[1]])


def test_a_level_is_only_made_of_layers():
    assert {layer for level in LEVELS.values() for group in level for layer in group} <= set(LAYERS)
    assert policy.OK == "ok"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu_seconds": 0}, "above 0"),
        ({"wall_seconds": float("nan")}, "above 0"),
        ({"memory_mib": -1}, "above 0"),
        ({"source_bytes": 10**6}, "at most 131072"),
        ({"require": "some"}, "must be one of"),
        ({"leave_out": frozenset({"seccmp"})}, "names no layer"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(changes: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        SandboxPolicy(**changes)
