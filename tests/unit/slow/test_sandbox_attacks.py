"""Every class of attack, with all layers, with either half of them, as root and as an ordinary user.

`make test` has the quick ones with all layers; the rest is in `make test-release`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import sandbox_attacks
from sandbox_attacks import ATTACKS, BREACH, INPUT, REACHING, policy, run_all

from verl_ext.sandbox import policy as policy_module
from verl_ext.sandbox.policy import LAYERS, SandboxUnavailableError
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.results import Status

ROOT = Path(__file__).resolve().parents[3]
# The system's own: every user may read its library, which has links to places that no program may read.
SYSTEM_PYTHON = "/usr/bin/python3"
NO_NAMESPACES = {"namespaces", "new_root"}
LANDLOCK = {layer for layer in LAYERS if layer.startswith("landlock")}
# Attacks that use up time or memory are stopped by the same limits, whatever the other layers are.
SLOW = ("loop", "alarm", "big integer", "regex", "bomb", "recursion", "flood")
QUICK = [name for name in ATTACKS if not any(word in name for word in SLOW) or name == "fork bomb"]

# Drops root if run as root, with the interpreter bound to a place that user nobody can reach.
AS_NOBODY = """
import os, sys
from verl_ext.sandbox.inside import kernel
base, place = sys.argv[1:3]
if os.geteuid() == 0:
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount(base, place, None, kernel.MS_BIND | kernel.MS_REC)
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
    base = place
name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
library = {"LD_LIBRARY_PATH": base + "/lib"}
program = f"{base}/bin/{name}"
os.execve(program, [program, "-B", *sys.argv[3:]], {"PYTHONPATH": os.environ["PYTHONPATH"], **library})
"""


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SANDBOX_SECRET", "x")


def _pool(python: str = sys.executable, **changes: object) -> SandboxPool:
    try:
        return SandboxPool(policy(**changes), python=python)
    except SandboxUnavailableError as error:
        pytest.skip(f"not possible on this machine: {error}")


@pytest.mark.parametrize("names", [QUICK, pytest.param(list(ATTACKS), marks=pytest.mark.release)], ids=["quick", "all"])
def test_every_attack_is_handled_with_all_layers(names: list[str]):
    with _pool(require="full") as pool:
        assert run_all(pool, names) == {}
        assert set(pool.isolation.values()) == {"ok"}
        assert pool.restarts == 0
        assert pool.counts[Status.INFRASTRUCTURE_ERROR] == 0


def _system_python() -> str:
    """The system's interpreter, or a skip that says why not."""
    if not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"there is no {SYSTEM_PYTHON}")
    ask = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([SYSTEM_PYTHON, "-I", "-c", ask], capture_output=True, text=True, check=True)
    version = tuple(map(int, done.stdout.split()))
    if version < (3, 10):
        pytest.skip(f"{SYSTEM_PYTHON} is {version}, the sandbox needs 3.10")
    return SYSTEM_PYTHON


def test_every_layer_holds_under_the_systems_interpreter():
    with _pool(python=_system_python(), require="full") as pool:
        assert set(pool.isolation.values()) == {"ok"}
        assert run_all(pool, [name for name in QUICK if "numpy" not in name]) == {}


# An older kernel has no Landlock scopes: then only seccomp protects against signals.
MISSING = {
    "nothing": set(),
    "namespaces": NO_NAMESPACES,
    "namespaces and scopes": NO_NAMESPACES | {"landlock_scopes"},
    "landlock": LANDLOCK,
}


@pytest.mark.parametrize("names", [REACHING, pytest.param(QUICK, marks=pytest.mark.release)], ids=["reaching", "quick"])
@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING)
def test_no_attack_disturbs_its_neighbours_whichever_half_the_kernel_denies(missing: set[str], names: list[str]):
    # Under the system's interpreter where there is one: user nobody must be able to import what an attack needs.
    python = SYSTEM_PYTHON if os.access(SYSTEM_PYTHON, os.X_OK) else sys.executable
    with _pool(python=python, leave_out=frozenset(missing)) as pool:
        assert run_all(pool, [name for name in names if "numpy" not in name]) == {}
        assert {layer for layer, state in pool.isolation.items() if state != "ok"} == missing
        assert pool.counts[Status.INFRASTRUCTURE_ERROR] == 0


@pytest.mark.parametrize("names", [REACHING, pytest.param(QUICK, marks=pytest.mark.release)], ids=["reaching", "quick"])
@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("system", [False, pytest.param(True, marks=pytest.mark.release)], ids=["own", "system"])
def test_no_attack_of_an_ordinary_user_disturbs_its_neighbours(missing: set[str], names: list[str], system: bool):
    if not os.access(ROOT, os.X_OK) or any(not folder.stat().st_mode & 0o005 for folder in (ROOT, *ROOT.parents)):
        pytest.skip(f"user nobody cannot read {ROOT}")
    # The interpreter may be in root's home, which others cannot read: it is bound to a folder that they can reach.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        if os.geteuid() != 0 and not os.access(sys.base_prefix, os.R_OK):
            pytest.skip(f"this user cannot read {sys.base_prefix}")
        # numpy is not on this interpreter's path, so what needs it would fail for another reason.
        chosen = {
            "require": "minimum" if missing else "full",
            "leave_out": sorted(missing),
            "names": [name for name in names if "numpy" not in name],
            **({"python": _system_python()} if system else {}),
        }
        arguments = json.dumps(chosen)
        script = str(Path(sandbox_attacks.__file__))
        command = [sys.executable, "-c", AS_NOBODY, sys.base_prefix, place, script, arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=300)
    if "cannot be met on this machine" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["uid"] != 0
    assert report["failures"] == {}
    assert {layer for layer, state in report["isolation"].items() if state != "ok"} == missing


# Given the digits of a number, searches for it in all that a program can find out about its server.
SEARCH = """
import os, re, sys
def solve(g):
    wanted = ''.join(map(str, g[0]))
    digits = re.compile('[0-9]+')
    frame, seen = sys._getframe().f_back, [sys.argv, sys.orig_argv, dict(os.environ)]
    while frame:
        seen += [dict(frame.f_locals), {k: v for k, v in frame.f_globals.items() if k != '__builtins__'}]
        frame = frame.f_back
    for _ in range(4):
        seen += [x for holder in seen if type(holder) in (dict, list, tuple)
                 for x in (holder.values() if type(holder) is dict else holder) if x is not g]
        seen = list({id(x): x for x in seen}.values())
    found = any(wanted in digits.findall(str(x)) for x in seen if type(x) in (int, str, bytes))
    return [[6]] if found else [[len(seen) > 100 and 1]]
"""


@pytest.mark.parametrize("missing", [set(), NO_NAMESPACES], ids=["nothing", "namespaces"])
def test_a_program_cannot_read_who_trains(missing: set[str]):
    if os.getpid() < 1000:
        pytest.skip(f"the number {os.getpid()} may mean many things")
    with _pool(leave_out=frozenset(missing), cpu_seconds=10.0) as pool:
        execution = pool.run(SEARCH, [[int(digit) for digit in str(os.getpid())]])
        assert (execution.grid, execution.detail) == (((1,),), "")
        # It finds its own limits, which it is allowed to know: the search works.
        assert pool.run(SEARCH, [[int(digit) for digit in str(policy().output_bytes)]]).grid == BREACH


# Harmless programs that only succeed when nothing stops them: an attack that could never succeed proves nothing.
# They import only modules that the server has loaded: user nobody may be unable to read the library's folder.
OPEN_DOORS = {
    "read": "def solve(g): open('/etc/passwd').read(); return [[6]]",
    "write": "def solve(g): open({place!r} + '/file', 'w').write('x'); return [[6]]",
    "fork": "import os\ndef solve(g):\n if os.fork() == 0: os._exit(0)\n os.wait(); return [[6]]",
    "thread": "import _thread\ndef solve(g): _thread.start_new_thread(print, ()); return [[6]]",
    "tcp": "import socket\ndef solve(g): socket.socket().connect(('127.0.0.1', {port})); return [[6]]",
    "abstract": "import socket\ndef solve(g): socket.socket(socket.AF_UNIX).connect('\\0{name}'); return [[6]]",
    "signal": "import os\ndef solve(g): os.kill({trainer}, 0); return [[6]]",
    "namespace": "import ctypes\ndef solve(g): return [[6 + ctypes.CDLL(None).unshare(0x10000000)]]",
    "memory": "def solve(g): x = bytes(10 ** 9); return [[6]]",
    "flood": "def solve(g): print('x' * 10 ** 6); return [[6]]",
}


@pytest.mark.parametrize(
    ("applied", "open_doors"),
    [
        (set(), set(OPEN_DOORS)),
        ({"no_privileges", "rlimits"}, {"read", "tcp", "abstract", "namespace"}),
        ({"no_privileges", "seccomp"}, {"read", "memory", "flood"}),
        ({"no_privileges", "landlock_files"}, set(OPEN_DOORS) - {"read"}),
        ({"no_privileges", "landlock_network"}, set(OPEN_DOORS) - {"tcp"}),
        ({"no_privileges", "landlock_scopes"}, set(OPEN_DOORS) - {"abstract"}),
        ({"namespaces", "new_root"}, {"fork", "thread", "memory", "flood", "namespace"}),
        (set(LAYERS), set()),
    ],
    ids=lambda value: "+".join(sorted(value)) or "none",
)
def test_each_layer_closes_its_own_doors(
    applied: set[str], open_doors: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(policy_module.LEVELS, "minimum", ())
    name = f"sandbox-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        facts = {"place": str(tmp_path), "port": tcp.getsockname()[1], "name": name, "trainer": os.getpid()}
        # Landlock restricts only a process that gave up its privileges; without any layer, root stays root.
        left_out = set(LAYERS) - applied - ({"no_privileges"} if any("landlock" in x for x in applied) else set())
        if applied == {"seccomp"}:
            left_out -= {"no_privileges"}
        with SandboxPool(policy(leave_out=frozenset(left_out)), workers=1) as pool:
            if any(pool.isolation[layer] != "ok" for layer in applied):
                pytest.skip(f"not possible on this machine: {dict(pool.isolation)}")
            found = set()
            for door, program in OPEN_DOORS.items():
                for key, value in facts.items():
                    program = program.replace("{" + key + "!r}", repr(value)).replace("{" + key + "}", str(value))
                execution = pool.run(program, INPUT)
                if execution.grid == BREACH:
                    found.add(door)
    # Whether user nobody may write there or signal the trainer depends on who owns both.
    unsure = {"write", "signal"} if applied else set()
    assert found - unsure == open_doors - unsure
