/**
 * The system calls that workerd (1.20261117.1) and the SQL process (Node 24, libSQL 0.5.29) were seen to make by
 * `strace -f` under the end-to-end tests of the runtime, KV, R2 and hostile tenants, and what stands in for them on other
 * kernels and C libraries. clone3 and io_uring_setup were seen, too: both fall back to other calls.
 * Numbers: asm/unistd_64.h and asm-generic/unistd.h of Linux 6.1.
 */

/** Numbers of a call: [x86_64, arm64]; -1 where the architecture has no such call. */
export type CallNumbers = readonly [x64: number, arm64: number];

/** Of both kinds of process, the two programs that start them (prlimit, setpriv), the dynamic loader and the C library. */
export const ANY = {
  // Files and descriptors that are there.
  read: [0, 63],
  write: [1, 64],
  readv: [19, 65],
  writev: [20, 66],
  pread64: [17, 67],
  pwrite64: [18, 68],
  close: [3, 57],
  fstat: [5, 80],
  newfstatat: [262, 79],
  stat: [4, -1],
  lstat: [6, -1],
  statx: [332, 291],
  statfs: [137, 43],
  fstatfs: [138, 44],
  access: [21, -1],
  faccessat: [269, 48],
  faccessat2: [439, 439],
  readlink: [89, -1],
  readlinkat: [267, 78],
  getcwd: [79, 17],
  lseek: [8, 62],
  getdents64: [217, 61],
  dup: [32, 23],
  dup2: [33, -1],
  dup3: [292, 24],
  pipe: [22, -1],
  pipe2: [293, 59],
  eventfd2: [290, 19],
  // Its own memory.
  mmap: [9, 222],
  munmap: [11, 215],
  mprotect: [10, 226],
  mremap: [25, 216],
  madvise: [28, 233],
  brk: [12, 214],
  pkey_mprotect: [329, 288],
  pkey_alloc: [330, 289],
  pkey_free: [331, 290],
  membarrier: [324, 283],
  // Its own threads, and its end.
  futex: [202, 98],
  set_robust_list: [273, 99],
  set_tid_address: [218, 96],
  rseq: [334, 293],
  sched_yield: [24, 124],
  sched_getaffinity: [204, 123],
  sched_getparam: [143, 121],
  sched_getscheduler: [145, 120],
  getcpu: [309, 168],
  execve: [59, 221],
  exit: [60, 93],
  exit_group: [231, 94],
  wait4: [61, 260],
  waitid: [247, 95],
  arch_prctl: [158, -1],
  // Signals.
  rt_sigaction: [13, 134],
  rt_sigprocmask: [14, 135],
  rt_sigreturn: [15, 139],
  sigaltstack: [131, 132],
  restart_syscall: [219, 128],
  tgkill: [234, 131],
  // Who it is, and becoming less.
  getpid: [39, 172],
  gettid: [186, 178],
  getppid: [110, 173],
  getuid: [102, 174],
  geteuid: [107, 175],
  getgid: [104, 176],
  getegid: [108, 177],
  getresuid: [118, 148],
  getresgid: [120, 150],
  getgroups: [115, 158],
  capget: [125, 90],
  capset: [126, 91],
  setgroups: [116, 159],
  setresuid: [117, 147],
  setresgid: [119, 149],
  prlimit64: [302, 261],
  // Time and the machine.
  clock_gettime: [228, 113],
  clock_getres: [229, 114],
  gettimeofday: [96, 169],
  time: [201, -1],
  nanosleep: [35, 101],
  clock_nanosleep: [230, 115],
  getrandom: [318, 278],
  uname: [63, 160],
  sysinfo: [99, 179],
  getrusage: [98, 165],
  // Waiting.
  epoll_create1: [291, 20],
  epoll_ctl: [233, 21],
  epoll_wait: [232, -1],
  epoll_pwait: [281, 22],
  poll: [7, -1],
  ppoll: [271, 73],
  // Unix sockets.
  bind: [49, 200],
  connect: [42, 203],
  listen: [50, 201],
  accept: [43, 202],
  accept4: [288, 242],
  getsockname: [51, 204],
  getpeername: [52, 205],
  getsockopt: [55, 209],
  sendto: [44, 206],
  recvfrom: [45, 207],
  sendmsg: [46, 211],
  recvmsg: [47, 212],
  shutdown: [48, 210],
} as const satisfies Record<string, CallNumbers>;

/** The SQL process forks an engine, and both write files. */
export const OF_DATABASE = {
  fsync: [74, 82],
  fdatasync: [75, 83],
  ftruncate: [77, 46],
  unlink: [87, -1],
  unlinkat: [263, 35],
  fchmod: [91, 52],
  fchown: [93, 55],
  fork: [57, -1],
  vfork: [58, -1],
  kill: [62, 129],
  getpriority: [140, 141],
  setpriority: [141, 140],
} as const satisfies Record<string, CallNumbers>;

/** workerd writes the files of Durable Objects: SQLite databases, each in its class' folder. */
export const OF_OBJECTS = {
  fsync: [74, 82],
  fdatasync: [75, 83],
  ftruncate: [77, 46],
  unlink: [87, -1],
  unlinkat: [263, 35],
  mkdir: [83, -1],
  mkdirat: [258, 34],
  fchmod: [91, 52],
  fchown: [93, 55],
} as const satisfies Record<string, CallNumbers>;

/** One that is a member of a cluster also puts copies of objects in place of others, and speaks TCP on its loopback. */
export const OF_MEMBER = {
  ...OF_OBJECTS,
  rename: [82, -1],
  renameat: [264, 38],
  renameat2: [316, 276],
} as const satisfies Record<string, CallNumbers>;

/** Allowed for some arguments only; seccomp.ts looks at them. */
export const LOOKED_INTO = {
  clone: [56, 220],
  socket: [41, 198],
  socketpair: [53, 199],
  open: [2, -1],
  openat: [257, 56],
  ioctl: [16, 29],
  fcntl: [72, 25],
  prctl: [157, 167],
  setsockopt: [54, 208],
} as const satisfies Record<string, CallNumbers>;
