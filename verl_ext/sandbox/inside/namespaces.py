"""Separate namespaces, and a root directory that contains only libraries."""

import os

from verl_ext.sandbox.inside import kernel, syscall_tables

_KEPT_FLAGS = {  # statvfs flag -> mount flag: a user namespace may not remove these from a mount it did not create
    os.ST_NOSUID: kernel.MS_NOSUID,
    os.ST_NODEV: kernel.MS_NODEV,
    os.ST_NOEXEC: kernel.MS_NOEXEC,
    os.ST_NOATIME: kernel.MS_NOATIME,
    os.ST_NODIRATIME: kernel.MS_NODIRATIME,
    os.ST_RELATIME: kernel.MS_RELATIME,
}
_NOBODY = 65534


def enter() -> None:
    """New mount, process, network, IPC and host name namespaces; the process namespace begins with the next fork.

    A user namespace is only added if the others need it: for an ordinary user, or a root without CAP_SYS_ADMIN.

    Raises:
        OSError: If the kernel refuses.
    """
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        try:
            kernel.unshare(flags)
            return
        except OSError:
            pass
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{_NOBODY} {uid} 1"), ("gid_map", f"{_NOBODY} {gid} 1")):
        with open(f"/proc/self/{file}", "w") as stream:
            stream.write(text)


def _mount_point(sources: list[str]) -> str:
    """A directory to mount the new root on, which must not cover the folders bound into it."""
    for folder in ("/mnt", "/tmp", "/var/tmp", "/usr/local", "/dev/shm", "/opt", "/srv", "/home", "/media"):
        if os.path.isdir(folder) and not any(os.path.realpath(path).startswith(folder + "/") for path in sources):
            return folder
    raise OSError("no directory was found to mount the new root on")


def new_root(folders: list[str], hidden: list[str]) -> None:
    """Make a read-only tmpfs with `folders` in it the root directory, with `hidden` ones covered by empty ones.

    Needs the namespaces of `enter`: in the machine's own mount namespace this would break the machine.

    Raises:
        OSError: If the kernel refuses.
    """
    found = syscall_tables.native()
    if found is None:
        raise OSError("the number of pivot_root is not known on this architecture")
    read_only = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    root = _mount_point(folders)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,nr_inodes=1000,mode=0755")
    os.umask(0o022)
    for folder in folders:
        target = root + folder
        os.makedirs(target, exist_ok=True)
        kept = sum(flag for seen, flag in _KEPT_FLAGS.items() if os.statvfs(folder).f_flag & seen)
        kernel.mount(folder, target, None, kernel.MS_BIND)
        kernel.mount(None, target, None, read_only | kept)
    for folder in hidden:
        if os.path.isdir(root + folder):
            kernel.mount("tmpfs", root + folder, "tmpfs", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)
    os.chdir(root)
    # The old root is stacked on the new one and unmounted, so it needs no directory.
    here = b".\0"
    address = kernel.address(here)
    kernel.syscall("pivot_root", found[1]["pivot_root"], address, address)
    kernel.unmount(".")
    os.chdir("/")
    kernel.mount(None, "/", None, read_only)
