"""Hostile programs, and the statuses that each may end with.

Every program is given INPUT; EXPECTED stays with the trainer. A program that got through returns BREACH, so the check
is always the same: is the grid BREACH, or is the verdict `ok`? Run as a script, this file runs them all and prints
one JSON object, for a test that needs another user:

    python tests/unit/sandbox_attacks.py '{"require": "full", "leave_out": []}'
"""

import json
import os
import sys
import tempfile
from textwrap import dedent, indent

from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.policy import SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.results import Status

INPUT, EXPECTED, BREACH = ((1, 2), (3, 4)), ((9, 8), (7, 6)), ((6,),)
GOOD = "def solve(g): return [[10 - c for c in row] for row in g]"

S = Status
ATTACKS: dict[str, tuple[str, set[Status]]] = {}
# A denied program ends as forbidden, or with the error for something that does not exist.
DENIED = {S.FORBIDDEN, S.RUNTIME_ERROR}


# Names of attacks that reach for other processes. They end at once, so every test of layers can run all of them.
REACHING: list[str] = []


def attack(name: str, allowed: Status | set[Status], body: str, breach: bool = True) -> None:
    """Add a program whose `solve` runs `body`; with `breach`, one that reaches the end of its body has got through."""
    code = dedent(body).strip("\n") + ("\nreturn [[6]]" if breach else "")
    statuses = {allowed} if isinstance(allowed, Status) else allowed
    ATTACKS[name] = ("def solve(g):\n" + indent(code, "    ") + "\n", statuses)


# Time
attack("infinite loop", S.TIMEOUT, "while True: pass")
attack(
    "loop that catches BaseException",
    S.TIMEOUT,
    """
    while True:
        try:
            while True: pass
        except BaseException: pass
    """,
)
attack(
    "alarm(0) and ignored signals",
    S.TIMEOUT,
    """
    import signal
    signal.alarm(0)
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: pass
    """,
)
attack("big integer", {S.TIMEOUT, S.MEMORY}, "return [[(7 ** (10 ** 9)) % 3]]", breach=False)
attack("regex", S.TIMEOUT, "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')")
# Processes
attack("fork bomb", S.FORBIDDEN, "import os\nwhile True: os.fork()")
attack("double-fork daemon", S.FORBIDDEN, "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()")
attack("subprocess", DENIED, "import subprocess; subprocess.run(['/bin/true'])")
attack("posix_spawn", DENIED, "import os; os.posix_spawn('/bin/true', ['true'], {})")
attack("exec", DENIED, "import os; os.execv('/bin/sh', ['sh', '-c', 'sleep 9'])")
attack("threads", S.RUNTIME_ERROR, "import threading; threading.Thread(target=print).start()")
attack("setsid", DENIED, "import os; os.setsid()")
# Memory
attack("allocation bomb", S.MEMORY, "x = []\nwhile True: x.append(bytearray(10 ** 7))")
attack("anonymous mmap", {S.RUNTIME_ERROR, S.MEMORY}, "import mmap; x = mmap.mmap(-1, 10 ** 12)")
attack("recursion", S.RUNTIME_ERROR, "def f(): return f()\nf()")
attack(
    "recursion without a limit",
    {S.MEMORY, S.KILLED, S.TIMEOUT},
    "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
)
attack("nesting that breaks the parser", {S.SYNTAX_ERROR, S.MEMORY}, "return " + "(" * 9999, breach=False)
attack("memory file", DENIED, "import os; os.memfd_create('x')")
# Output
attack("stdout flood", S.OUTPUT_LIMIT, "while True: print('x' * 1000)")
attack("stderr flood", S.OUTPUT_LIMIT, "import sys\nwhile True: print('x' * 1000, file=sys.stderr)")
attack("flood that swallows errors", S.OUTPUT_LIMIT, "import os\nwhile True: os.write(1, b'x' * 1000)")
attack("result flood", S.OUTPUT_LIMIT, "import os\nfor _ in range(99): os.write(3, b'[' * 9999)", breach=False)
attack("huge grid", S.INVALID_OUTPUT, "return [[1] * 10 ** 6]", breach=False)
attack("forged result on stdout", S.RUNTIME_ERROR, "print('[[9,8],[7,6]]')\nraise ValueError", breach=False)
attack(
    "forged result on every descriptor",
    {S.INVALID_OUTPUT},
    "import os\nfor d in (0, 1, 2, 3):\n    try: os.write(d, b'G[[9,8],[7,6]]')\n    except OSError: pass\nreturn g",
    breach=False,
)
# Endings
attack("sys.exit", S.RUNTIME_ERROR, "import sys; sys.exit(0)")
attack("os._exit", S.RUNTIME_ERROR, "import os; os._exit(0)")
attack("os._exit with the harness's code", S.RUNTIME_ERROR, "import os; os._exit(70)")
attack("segfault", S.KILLED, "import ctypes; ctypes.string_at(0)")
attack("self-kill", S.FORBIDDEN, "import os; os.kill(os.getpid(), 9)")
attack("abort", {S.KILLED, S.FORBIDDEN}, "import os; os.abort()")
# Values
for label, value in {
    "list subclass": "type('L', (list,), {'__eq__': lambda s, o: True, '__ne__': lambda s, o: False})([[9, 8]])",
    "row subclass": "[type('L', (list,), {'__eq__': lambda s, o: True, '__hash__': None})([9, 8]), [7, 6]]",
    "int subclass": "[[type('I', (int,), {'__eq__': lambda s, o: True, '__hash__': None})(9), 8], [7, 6]]",
    "__reduce__": "type('R', (), {'__reduce__': lambda s: (list, ([[9, 8], [7, 6]],))})()",
    "lying __len__": "type('L', (list,), {'__len__': lambda s: 2})([[9, 8], [7, 6], [0, 0]])",
    "bool": "[[True]]",
    "float": "[[1.0]]",
    "numpy scalar": "[[__import__('numpy').int64(9)]]",
    "numpy array": "__import__('numpy').array([[9, 8], [7, 6]])",
    "tuple": "((9, 8), (7, 6))",
    "text": "'[[9,8],[7,6]]'",
    "nothing": "None",
    "no rows": "[]",
    "an empty row": "[[]]",
    "ragged": "[[9, 8], [7]]",
    "31 rows": "[[1]] * 31",
    "31 columns": "[[1] * 31]",
    "ten": "[[10]]",
    "negative": "[[-1]]",
    "cyclic": "(lambda x: x.append(x) or x)([])",
}.items():
    attack(f"value: {label}", S.INVALID_OUTPUT, f"return {value}", breach=False)
# Patches: none may make a wrong answer count as right
EQUAL = "type('L', (list,), {'__eq__': lambda s, o: True, '__hash__': None})([[0]])"
attack(
    "patched builtins",
    {S.INVALID_OUTPUT, S.WRONG_OUTPUT, S.RUNTIME_ERROR},
    f"import builtins\nbuiltins.type = lambda x: list\nbuiltins.isinstance = lambda *a: True\n"
    f"builtins.len = lambda x: 1\nbuiltins.repr = lambda x: '[[9,8],[7,6'\n"
    f"return {EQUAL.replace('type(', 'g.__class__.__class__(')}",
    breach=False,
)
attack(
    "patched json and sys.modules",
    {S.INVALID_OUTPUT, S.WRONG_OUTPUT, S.RUNTIME_ERROR},
    f"import sys, json\njson.dumps = json.loads = lambda *a: None\nx = {EQUAL}\nsys.modules.clear()\nreturn x",
    breach=False,
)
attack(
    "importlib.reload",
    {S.WRONG_OUTPUT, S.RUNTIME_ERROR},
    "import importlib, json, os\nfor m in (json, os): importlib.reload(m)\nreturn g",
    False,
)
attack("atexit", S.WRONG_OUTPUT, "import atexit, os\natexit.register(os.write, 3, b'x')\nreturn g", False)
attack("argument mutation", S.WRONG_OUTPUT, "g[0][0] = 9\ng.append([0, 0])\nreturn g", False)
attack(
    "search of memory for the expected output",
    S.WRONG_OUTPUT,
    """
    import gc, sys
    def right(x):
        return type(x) is list and len(x) == 2 and all(type(r) is list and len(r) == 2 for r in x) and x[0][0] == 10 - 1
    frame, seen = sys._getframe(), []
    while frame:
        seen += [*frame.f_locals.values(), *frame.f_globals.values()]
        frame = frame.f_back
    for holder in [seen, *gc.get_objects()]:
        seen += [x for x in gc.get_referents(holder) if type(x) in (list, bytes, str)]
    for x in seen:
        if right(x): return x
        if type(x) in (bytes, str) and len(x) < 99:
            # Written so that the program's own text does not match.
            if '[' + '[9' in str(x) and '8],' + '[7' in str(x).replace(' ', ''): return [[6]]
    return g
    """,
    False,
)
# Reading
for path in (
    "/etc/passwd",
    "/etc/shadow",
    "/proc/self/environ",
    "/proc/self/maps",
    "/proc/1/environ",
    "/sys/kernel/mm",
):
    attack(
        f"read {path}",
        DENIED,
        f"x = __import__('os').listdir({path!r}) if {path[1:4] == 'sys'} else open({path!r}).read()",
    )
attack("parent memory", DENIED, "import os; open(f'/proc/{os.getppid()}/mem', 'rb').read(1)")
attack("own memory file", DENIED, "open('/proc/self/mem', 'rb')")
attack("list the root and home", DENIED, "import os\nfound = [os.listdir(p) for p in ('/home', '/root', '/etc')]")
attack("environment", S.WRONG_OUTPUT, "import os\nif 'SANDBOX_SECRET' in os.environ: return [[6]]\nreturn g", False)
attack("open by ..", DENIED, "import os\nd = os.path.dirname(os.__file__)\nopen(d + '/..' * 20 + '/etc/passwd').read()")
# Writing
attack(
    "write outside",
    DENIED,
    "import os\nfor d in ('/dev/shm', '/tmp', '/'): open(d + '/sandbox-breach', 'w').write('x')",
)
attack("mkdir", DENIED, "import os; os.mkdir('/tmp/sandbox-breach-folder')")
attack("symlink", DENIED, "import os; os.symlink('/etc/passwd', '/tmp/sandbox-breach-link')")
attack("hard link", DENIED, "import os; os.link(os.__file__, '/tmp/sandbox-breach-hard')")
attack("named pipe", DENIED, "import os; os.mkfifo('/tmp/sandbox-breach-pipe')")
attack("truncate a library", DENIED, "import os; os.truncate(os.__file__, os.path.getsize(os.__file__))")
attack("chmod a library", DENIED, "import os; os.chmod(os.__file__, 0o644)")
attack(
    "disk fill",
    DENIED | {S.OUTPUT_LIMIT},
    "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'x' * 10 ** 8)",
)
# Network
attack("TCP", DENIED, "import socket; socket.create_connection(('127.0.0.1', 22), 1)")
attack("UDP", DENIED, "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))")
attack("Unix socket", DENIED, "import socket; socket.socket(socket.AF_UNIX).bind('/tmp/sandbox-breach-socket')")
attack("abstract socket", DENIED, "import socket; socket.socket(socket.AF_UNIX).bind('\\0sandbox-breach')")
attack("socket pair", DENIED, "import socket; socket.socketpair()")
# Other system calls, through the C library
ERRNO = "raise OSError(ctypes.get_errno(), 'denied')"
for label, call in {
    "ptrace of the parent": "ptrace(16, os.getppid(), 0, 0)",
    "ptrace of itself": "ptrace(0, 0, 0, 0)",
    "kill everything": "kill(-1, 0)",
    "kill the server": "kill(os.getppid(), 0)",
    "user namespace": "unshare(0x10000000)",
    "mount namespace": "unshare(0x00020000)",
    "mount": "mount(b'x', b'/', b'tmpfs', 0, 0)",
    "chroot": "chroot(b'/')",
    "setuid": "setuid(0)",
    "dumpable": "prctl(4, 1, 0, 0, 0)",
    "C socket": "socket(2, 1, 0)",
    "read another process": "process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
    "key ring": "syscall(250, 0, -3, 0, 0, 0)",
    "limits of the server": "prlimit(os.getppid(), 0, 0, 0)",
}.items():
    source = f"import ctypes, os\nif ctypes.CDLL(None, use_errno=True).{call} < 0: {ERRNO}"
    attack(f"ctypes: {label}", DENIED, source)
# Other processes. If a pipe's owner, signal and O_ASYNC are set, the kernel sends that signal to the owner.
for label, call in {
    "owner": "F_SETOWN, os.getppid()",
    "owner's thread": "15, struct.pack('ii', 0, os.getppid())",
    "owner's group": "F_SETOWN, -os.getppid()",
    "signal": "10, 9",
    "asynchronous": "F_SETFL, os.O_ASYNC",
    "asynchronous and more": "F_SETFL, os.O_ASYNC | os.O_NONBLOCK",
    "lease": "F_SETLEASE, fcntl.F_RDLCK",
    "notification": "F_NOTIFY, fcntl.DN_ACCESS",
    "pipe size": "1031, 1 << 20",
    "seals": "1033, 1",
}.items():
    opened = (
        "os.open(os.path.dirname(os.__file__), os.O_RDONLY)" if label in ("lease", "notification") else "os.pipe()[1]"
    )
    call = call if call[0].isdigit() else f"fcntl.{call}"
    attack(f"fcntl: {label}", DENIED, f"import fcntl, os, struct\nfcntl.fcntl({opened}, {call})")
    REACHING.append(f"fcntl: {label}")
# Each way is tried separately, so that a refused one does not hide the next.
SIGNAL = """
import fcntl, os, struct
def send(pid, signal):
    own = [lambda d: fcntl.fcntl(d, fcntl.F_SETOWN, pid), lambda d: fcntl.fcntl(d, 15, struct.pack('ii', 1, pid)),
           lambda d: fcntl.ioctl(d, 0x8901, struct.pack('i', pid))]
    start = [lambda d: fcntl.fcntl(d, fcntl.F_SETFL, os.O_ASYNC), lambda d: fcntl.ioctl(d, 0x5452, struct.pack('i', 1))]
    for owner in own:
        for asynchronous in start:
            r, w = os.pipe()
            for step in (lambda: fcntl.fcntl(r, 10, signal), lambda: owner(r), lambda: asynchronous(r),
                         lambda: os.write(w, b'x')):
                try: step()
                except OSError: pass
            os.close(r), os.close(w)
"""
for label, targets in {
    "the fork server": "[os.getppid()]",
    "process groups": "[-os.getppid(), -1]",
    "neighbours and the trainer": "range(max(os.getppid() - 300, 2), os.getppid() + 300)",
}.items():
    for number in (9, 19):
        name = f"signal {number} to {label} by a pipe"
        # The grid shows no breach; `run_all` checks what it did to other processes.
        attack(name, DENIED | {S.WRONG_OUTPUT}, f"{SIGNAL}\nfor pid in {targets}: send(pid, {number})\nreturn g", False)
        REACHING.append(name)
for label, call in {
    "process group of the server": "os.getpgid(os.getppid())",
    "session of the server": "os.getsid(os.getppid())",
    "processors of the server": "os.sched_getaffinity(os.getppid())",
    "clock of the server": "time.clock_gettime((~os.getppid() << 3) | 2)",
    "resolution of the server's clock": "time.clock_getres((~os.getppid() << 3) | 2)",
    "timer on the server's clock": "c(230, (~os.getppid() << 3) | 2, 0, struct.pack('qq', 0, 1), 0)",
    "robust list of the server": "c(274, os.getppid(), bytearray(8), bytearray(8))",
    "priority of a thread": "c(202, struct.pack('i', os.getppid()), 6, 0, 0, 0, 0)",
    "private priority of a thread": "c(202, struct.pack('i', os.getppid()), 6 | 128, 0, 0, 0, 0)",
    "barrier on every processor": "c(324, 1, 0, 0)",
    "queued signal": "c(129, os.getppid(), 0, bytes(128))",
    "thread signal": "c(234, os.getppid(), os.getppid(), 0)",
    "signal by a descriptor": "c(424, 0, 0, 0, 0)",
    "asynchronous by ioctl": "c(16, os.pipe()[0], 0x5452, struct.pack('i', 1))",
    "owner by ioctl": "c(16, os.pipe()[0], 0x8901, struct.pack('i', os.getppid()))",
    "large pages": "mmap.mmap(-1, 1 << 21, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)",
    "page cache": "os.posix_fadvise(open(os.__file__, 'rb').fileno(), 0, 0, os.POSIX_FADV_DONTNEED)",
    "message on the answer's socket": "c(46, 3, 0, 0)",
    "owner of the answer's socket": "fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid())",
}.items():
    by_number = f"def c(*a):\n    if ctypes.CDLL(None, use_errno=True).syscall(*map(argument, a)) < 0: {ERRNO}"
    buffer = "ctypes.create_string_buffer(bytes(x), 256)"
    argument = f"def argument(x): return ctypes.c_long(x) if type(x) is int else {buffer}"
    source = f"import ctypes, fcntl, mmap, os, struct, time\n{argument}\n{by_number}\n{call}"
    attack(f"reach: {label}", DENIED, source)
    REACHING.append(f"reach: {label}")
attack(
    "state across calls by shared descriptors",
    S.WRONG_OUTPUT,
    """
    import fcntl, os, struct
    lock = struct.pack('hhqqi', fcntl.F_RDLCK, 0, 7, 1, 0)
    for d in (0, 1, 3):  # 2 is 1
        flags = fcntl.fcntl(d, fcntl.F_GETFL)
        if flags & (os.O_NONBLOCK | os.O_APPEND): return [[6]]
        fcntl.fcntl(d, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_APPEND)
        try: fcntl.fcntl(d, 37, lock)
        except OSError: pass
    return g
    """,
    False,
)
REACHING.append("state across calls by shared descriptors")
attack(
    "inherited descriptors",
    S.WRONG_OUTPUT,
    """
    import os
    for d in range(4, 4096):
        try: os.fstat(d)
        except OSError: continue
        return [[6]]
    return g
    """,
    False,
)
attack(
    "state across calls",
    S.WRONG_OUTPUT,
    """
    import builtins, json, os
    if hasattr(builtins, 'breach') or hasattr(json, 'breach') or 'breach' in os.environ: return [[6]]
    builtins.breach = json.breach = True
    os.environ['breach'] = 'x'
    return g
    """,
    False,
)


def policy(**changes: object) -> SandboxPolicy:
    """A policy with little CPU time, so that programs that use it up end soon."""
    settings = {"cpu_seconds": 0.4, "wall_seconds": 60.0, "memory_mib": 128, **changes}
    return SandboxPolicy(**settings)  # type: ignore[arg-type]


def run_all(pool: SandboxPool, names: list[str] | None = None) -> dict[str, str]:
    """What went wrong, by attack; empty if every attack ended as it should, disturbed none of the good programs
    that run next to it, and left no trace."""
    failures = {}
    chosen = [name for name in ATTACKS if names is None or name in names]
    # "state across calls" needs two runs in a row on the same server.
    jobs = [(ATTACKS[name][0], [Pair(INPUT, EXPECTED)] * (2 if "state" in name else 1)) for name in chosen]
    good = (GOOD, [Pair(INPUT, EXPECTED)] * 2)
    results = pool.check_many([job for attacking in jobs for job in (attacking, good)])
    failures.update(
        {
            f"a good program next to {name}": str(result.pairs)
            for name, result in zip(chosen, results[1::2], strict=True)
            if not result.solved
        }
    )
    if pool.restarts:
        failures["fork servers that died"] = str(pool.restarts)
    for name, result in zip(chosen, results[::2], strict=True):
        for execution in result.pairs:
            # An attack that could not import what it needs has attacked nothing.
            absent = "ModuleNotFoundError" in execution.detail and "numpy" not in name
            if execution.grid == BREACH or execution.status not in ATTACKS[name][1] or absent:
                failures[name] = f"{execution.status}: {execution.detail}"
    for folder in ("/", "/tmp", "/dev/shm", tempfile.gettempdir()):
        failures.update({f"left {entry}": folder for entry in os.listdir(folder) if entry.startswith("sandbox-breach")})
    if not pool.check(GOOD, [Pair(INPUT, EXPECTED)]).solved:
        failures["a good program afterwards"] = "is not solved"
    return failures


if __name__ == "__main__":
    os.environ["SANDBOX_SECRET"] = "x"
    arguments = json.loads(sys.argv[1])
    chosen_policy = policy(require=arguments["require"], leave_out=frozenset(arguments["leave_out"]))
    with SandboxPool(chosen_policy, python=arguments.get("python", sys.executable)) as attacked:
        failed = run_all(attacked, arguments.get("names"))
        report = {"uid": os.getuid(), "isolation": dict(attacked.isolation), "failures": failed}
    print(json.dumps(report))
