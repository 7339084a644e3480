"""System call numbers by name: x86-64 from the kernel's unistd_64.h, arm64 from asm-generic/unistd.h.

Names that an architecture does not have (arm64 has no `open` or `fork`) are missing from its table. The tables list the
calls that `seccomp.py` allows or kills, and those that the tests need.
"""

import platform


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (item.split("=") for item in text.split())}


X86_64 = _table("""
read=0 write=1 close=3 open=2 openat=257 stat=4 fstat=5 lstat=6 newfstatat=262 statx=332 lseek=8 mmap=9
mprotect=10 munmap=11 mremap=25 madvise=28 brk=12 rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15
sigaltstack=131 pread64=17 readv=19 writev=20 preadv=295 access=21 faccessat=269 faccessat2=439 readlink=89
readlinkat=267 getdents64=217 getcwd=79 dup=32 dup2=33 dup3=292 pipe=22 pipe2=293 select=23 pselect6=270
poll=7 ppoll=271 sched_yield=24 sched_getaffinity=204 nanosleep=35 clock_nanosleep=230 clock_gettime=228
clock_getres=229 gettimeofday=96 time=201 times=100 getpid=39 gettid=186 getppid=110 getuid=102 geteuid=107
getgid=104 getegid=108 getpgrp=111 getpgid=121 getsid=124 getgroups=115 getresuid=118 getresgid=120
getrusage=98 getrlimit=97 sysinfo=99 uname=63 getrandom=318 futex=202 set_robust_list=273 get_robust_list=274
set_tid_address=218 rseq=334 arch_prctl=158 exit=60 exit_group=231 restart_syscall=219 fcntl=72 ioctl=16
alarm=37 setitimer=38 getitimer=36 pause=34 rt_sigpending=127 rt_sigtimedwait=128 rt_sigsuspend=130
epoll_create1=291 epoll_ctl=233 epoll_wait=232 epoll_pwait=281 getcpu=309 membarrier=324 fadvise64=221
statfs=137 fstatfs=138 umask=95 clone=56 clone3=435 wait4=61 waitid=247 pidfd_open=434 pidfd_send_signal=424
kill=62 recvmsg=47 sendmsg=46 recvfrom=45 sendto=44 prctl=157 seccomp=317 setsid=112 close_range=436
prlimit64=302 fork=57 vfork=58 execve=59 execveat=322 socket=41 socketpair=53 connect=42 bind=49 listen=50
accept=43 accept4=288 ptrace=101 process_vm_readv=310 process_vm_writev=311 pidfd_getfd=438 kcmp=312
mount=165 umount2=166 pivot_root=155 chroot=161 unshare=272 setns=308 bpf=321 perf_event_open=298
userfaultfd=323 io_uring_setup=425 init_module=175 finit_module=313 kexec_load=246 keyctl=250 add_key=248
request_key=249 tkill=200 tgkill=234 rt_sigqueueinfo=129 rt_tgsigqueueinfo=297 open_by_handle_at=304
memfd_create=319
""")

AARCH64 = _table("""
read=63 write=64 close=57 openat=56 fstat=80 newfstatat=79 statx=291 lseek=62 mmap=222 mprotect=226
munmap=215 mremap=216 madvise=233 brk=214 rt_sigaction=134 rt_sigprocmask=135 rt_sigreturn=139
sigaltstack=132 pread64=67 readv=65 writev=66 preadv=69 faccessat=48 faccessat2=439 readlinkat=78
getdents64=61 getcwd=17 dup=23 dup3=24 pipe2=59 pselect6=72 ppoll=73 sched_yield=124 sched_getaffinity=123
nanosleep=101 clock_nanosleep=115 clock_gettime=113 clock_getres=114 gettimeofday=169 times=153 getpid=172
gettid=178 getppid=173 getuid=174 geteuid=175 getgid=176 getegid=177 getpgid=155 getsid=156 getgroups=158
getresuid=148 getresgid=150 getrusage=165 getrlimit=163 sysinfo=179 uname=160 getrandom=278 futex=98
set_robust_list=99 get_robust_list=100 set_tid_address=96 rseq=293 exit=93 exit_group=94 restart_syscall=128
fcntl=25 ioctl=29 setitimer=103 getitimer=102 rt_sigpending=136 rt_sigtimedwait=137 rt_sigsuspend=133
epoll_create1=20 epoll_ctl=21 epoll_pwait=22 getcpu=168 membarrier=283 fadvise64=223 statfs=43 fstatfs=44
umask=166 clone=220 clone3=435 wait4=260 waitid=95 pidfd_open=434 pidfd_send_signal=424 kill=129 recvmsg=212
sendmsg=211 recvfrom=207 sendto=206 prctl=167 seccomp=277 setsid=157 close_range=436 prlimit64=261 execve=221
execveat=281 socket=198 socketpair=199 connect=203 bind=200 listen=201 accept=202 accept4=242 ptrace=117
process_vm_readv=270 process_vm_writev=271 pidfd_getfd=438 kcmp=272 mount=40 umount2=39 pivot_root=41
chroot=51 unshare=97 setns=268 bpf=280 perf_event_open=241 userfaultfd=282 io_uring_setup=425 init_module=105
finit_module=273 kexec_load=104 keyctl=219 add_key=217 request_key=218 tkill=130 tgkill=131
rt_sigqueueinfo=138 rt_tgsigqueueinfo=240 open_by_handle_at=265 memfd_create=279
""")

# machine name -> AUDIT_ARCH of <linux/audit.h>, table
ARCHITECTURES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}


def native() -> tuple[int, dict[str, int]] | None:
    """AUDIT_ARCH and table of this machine; None for an architecture without one."""
    return ARCHITECTURES.get(platform.machine())
