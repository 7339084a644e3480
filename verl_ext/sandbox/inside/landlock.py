"""Landlock: which files may be read, and no TCP, abstract sockets or signals across the border.

Rules apply to a process and all its descendants and cannot be removed. Numbers from <linux/landlock.h>.
"""

import ctypes
import os

from verl_ext.sandbox.inside import kernel

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RULE_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def abi() -> int:
    """The version of Landlock that this kernel offers, 0 for none."""
    try:
        return kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, 0, 0, 1)
    except OSError:
        return 0


def restrict(folders: list[str], hidden: list[str], files: bool, network: bool, scopes: bool) -> dict[str, str]:
    """Restrict this process; needs no new privileges to be set.

    Args:
        folders: Folders that may be read, with everything below.
        hidden: Folders directly inside one of `folders` that may be listed but not read.
        files: Whether to restrict files; likewise `network` (TCP) and `scopes` (abstract sockets and signals).

    Returns:
        The report: "ok" or the reason for each of the three layers.

    Raises:
        OSError: If the kernel offers Landlock but refuses the call.
    """
    version = abi()
    wanted = {"landlock_files": (files, 1), "landlock_network": (network, 4), "landlock_scopes": (scopes, 6)}
    report = {
        layer: "ok" if version >= needed else f"unavailable: needs Landlock ABI {needed}, the kernel has {version}"
        for layer, (asked, needed) in wanted.items()
        if asked
    }
    on = {layer: report.get(layer) == "ok" for layer in wanted}
    if not any(on.values()):
        return report
    # Rights that an ABI does not know are refused: execute to make-symlink, refer (2), truncate (3), device ioctl (5).
    rights = (1 << 13) - 1
    rights |= sum(1 << bit for bit, since in ((13, 2), (14, 3), (15, 5)) if version >= since)
    ruleset = _Ruleset(rights * on["landlock_files"], 3 * on["landlock_network"], 3 * on["landlock_scopes"])
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    descriptor = kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.addressof(ruleset), size, 0)
    try:
        for path, allowed in _rules(folders, hidden) if on["landlock_files"] else ():
            _allow(descriptor, path, allowed)
        kernel.syscall("landlock_restrict_self", _RESTRICT_SELF, descriptor, 0)
    finally:
        os.close(descriptor)
    return report


def _rules(folders: list[str], hidden: list[str]) -> list[tuple[str, int]]:
    """Landlock cannot subtract: a folder with a hidden one inside is listed entry by entry."""
    rules = []
    for folder in folders:
        inside = {os.path.basename(path) for path in hidden if os.path.dirname(path) == folder}
        if not inside:
            rules.append((folder, _READ_FILE | _READ_DIR))
            continue
        rules.append((folder, _READ_DIR))  # imports list the folder
        for entry in os.scandir(folder):
            if entry.name not in inside:
                rules.append((entry.path, _READ_FILE | (_READ_DIR if entry.is_dir() else 0)))
    return rules


def _allow(ruleset: int, path: str, allowed: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # A link to a file missing in the new root, such as Debian's sitecustomize.py: no rule, so it cannot be read.
        return
    try:
        rule = _PathBeneath(allowed, descriptor)
        kernel.syscall("landlock_add_rule", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.addressof(rule), 0)
    finally:
        os.close(descriptor)
