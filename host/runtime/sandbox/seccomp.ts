/**
 * The system call filter of a sandbox, as the classic BPF program that bwrap loads (`--seccomp`): a list of calls that
 * neither workerd nor the SQL process makes and that kernel exploits are made of. Everything else stays allowed.
 */

/** `worker` may create neither processes nor files; `database` may. */
export type SeccompProfile = 'worker' | 'database';

interface Architecture {
  /** `AUDIT_ARCH_*` of linux/audit.h. */
  audit: number;
  /** Index of the call's number in the table below. */
  column: 0 | 1;
}

const ARCHITECTURES: Record<string, Architecture> = {
  x64: { audit: 0xc000003e, column: 0 },
  arm64: { audit: 0xc00000b7, column: 1 },
};

/** Name -> [x86_64, arm64]; -1 where the architecture has no such call. */
const FORBIDDEN: Record<string, readonly [number, number]> = {
  // Other processes.
  ptrace: [101, 117],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  process_madvise: [440, 440],
  pidfd_getfd: [438, 438],
  kcmp: [312, 272],
  // Mounts and namespaces.
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  chroot: [161, 51],
  unshare: [272, 97],
  setns: [308, 268],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fspick: [433, 433],
  mount_setattr: [442, 442],
  name_to_handle_at: [303, 264],
  open_by_handle_at: [304, 265],
  // Wide and often broken kernel interfaces.
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  fanotify_init: [300, 262],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  memfd_secret: [447, 447],
  modify_ldt: [154, -1],
  iopl: [172, -1],
  ioperm: [173, -1],
  uselib: [134, -1],
  lookup_dcookie: [212, 18],
  personality: [135, 92],
  // The machine.
  kexec_load: [246, 104],
  kexec_file_load: [320, 294],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  reboot: [169, 142],
  swapon: [167, 224],
  swapoff: [168, 225],
  syslog: [103, 116],
  acct: [163, 89],
  quotactl: [179, 60],
  quotactl_fd: [443, 443],
  vhangup: [153, 58],
  sethostname: [170, 161],
  setdomainname: [171, 162],
  settimeofday: [164, 170],
  clock_settime: [227, 112],
  adjtimex: [159, 171],
  clock_adjtime: [305, 266],
  mknod: [133, -1],
  mknodat: [259, 33],
  // Names of files elsewhere: whoever follows one later, with more rights, finds another file than he meant.
  symlink: [88, -1],
  symlinkat: [266, 36],
  link: [86, -1],
  linkat: [265, 37],
  // Memory that outlives the process or escapes its accounting.
  shmget: [29, 194],
  shmat: [30, 196],
  semget: [64, 190],
  msgget: [68, 186],
  mq_open: [240, 180],
};

/** workerd makes no files and no processes once it runs. */
const FORBIDDEN_TO_WORKER: Record<string, readonly [number, number]> = {
  fork: [57, -1],
  vfork: [58, -1],
  creat: [85, -1],
  mkdir: [83, -1],
  mkdirat: [258, 34],
  rename: [82, -1],
  renameat: [264, 38],
  renameat2: [316, 276],
  truncate: [76, 45],
  memfd_create: [319, 279],
};

const CALLS = {
  clone: [56, 220],
  clone3: [435, 435],
  socket: [41, 198],
  socketpair: [53, 199],
  open: [2, -1],
  openat: [257, 56],
  openat2: [437, 437],
  ioctl: [16, 29],
} as const;

const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const EPERM = 0x00050000 | 1;
const ENOSYS = 0x00050000 | 38;
const EAFNOSUPPORT = 0x00050000 | 97;

const CLONE_THREAD = 0x00010000;
/** CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const CLONE_NEW = 0x00000080 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000;
const O_CREAT = 0o100;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;
const AF_UNIX = 1;
/** Calls of the x32 ABI carry this bit; the filter's numbers would not match them. */
const X32_BIT = 0x40000000;

/** Offsets in `struct seccomp_data`; arguments are 64 bits, little-endian, and all of interest fit in the low half. */
const NUMBER = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;

const LOAD = 0x20;
const JUMP_EQUAL = 0x15;
const JUMP_AT_LEAST = 0x35;
const JUMP_ANY_BIT = 0x45;
const RETURN = 0x06;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, operand: number];

/** @returns the program as an array of `struct sock_filter`, or undefined for an architecture without a table */
export function seccompProgram(profile: SeccompProfile, architecture: string = process.arch): Uint8Array | undefined {
  const known = ARCHITECTURES[architecture];
  if (!known) return undefined;
  const number = (call: readonly [number, number]): number => call[known.column];
  const program: Instruction[] = [
    [LOAD, 0, 0, ARCH],
    [JUMP_EQUAL, 1, 0, known.audit],
    [RETURN, 0, 0, KILL_PROCESS],
    [LOAD, 0, 0, NUMBER],
    [JUMP_AT_LEAST, 0, 1, X32_BIT],
    [RETURN, 0, 0, KILL_PROCESS],
  ];
  /** `body` runs with the call's number still loaded and must end in a return, or reload the number. */
  const on = (call: readonly [number, number], body: Instruction[]): void => {
    if (number(call) >= 0) program.push([JUMP_EQUAL, 0, body.length, number(call)], ...body);
  };
  const refuse = (table: Record<string, readonly [number, number]>): void => {
    for (const call of Object.values(table)) on(call, [[RETURN, 0, 0, EPERM]]);
  };

  // Its flags are in memory, where a filter cannot look; the C library then uses clone.
  on(CALLS.clone3, [[RETURN, 0, 0, ENOSYS]]);
  on(CALLS.clone, [
    [LOAD, 0, 0, argument(0)],
    [JUMP_ANY_BIT, 0, 1, CLONE_NEW],
    [RETURN, 0, 0, EPERM],
    ...(profile === 'worker'
      ? ([
          [JUMP_ANY_BIT, 1, 0, CLONE_THREAD],
          [RETURN, 0, 0, EPERM],
        ] satisfies Instruction[])
      : []),
    [RETURN, 0, 0, ALLOW],
  ]);
  // There is no network inside, but some families (vsock, netlink, alg) do not belong to a network namespace.
  for (const call of [CALLS.socket, CALLS.socketpair]) {
    on(call, [
      [LOAD, 0, 0, argument(0)],
      [JUMP_EQUAL, 1, 0, AF_UNIX],
      [RETURN, 0, 0, EAFNOSUPPORT],
      [RETURN, 0, 0, ALLOW],
    ]);
  }
  on(CALLS.ioctl, [
    [LOAD, 0, 0, argument(1)],
    [JUMP_EQUAL, 1, 0, TIOCSTI],
    [JUMP_EQUAL, 0, 1, TIOCLINUX],
    [RETURN, 0, 0, EPERM],
    [RETURN, 0, 0, ALLOW],
  ]);
  if (profile === 'worker') {
    for (const [call, flags] of [
      [CALLS.open, argument(1)],
      [CALLS.openat, argument(2)],
    ] as const) {
      on(call, [
        [LOAD, 0, 0, flags],
        [JUMP_ANY_BIT, 0, 1, O_CREAT],
        [RETURN, 0, 0, EPERM],
        [RETURN, 0, 0, ALLOW],
      ]);
    }
    on(CALLS.openat2, [[RETURN, 0, 0, ENOSYS]]);
    refuse(FORBIDDEN_TO_WORKER);
  }
  refuse(FORBIDDEN);
  program.push([RETURN, 0, 0, ALLOW]);
  return assemble(program);
}

/** The calls that a profile refuses outright, for the doctor's page. */
export function refusedCalls(profile: SeccompProfile): string[] {
  return [...Object.keys(FORBIDDEN), ...(profile === 'worker' ? Object.keys(FORBIDDEN_TO_WORKER) : [])];
}

function assemble(program: Instruction[]): Uint8Array {
  const bytes = Buffer.alloc(program.length * 8);
  for (const [index, [code, ifTrue, ifFalse, operand]] of program.entries()) {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(ifTrue, index * 8 + 2);
    bytes.writeUInt8(ifFalse, index * 8 + 3);
    bytes.writeUInt32LE(operand >>> 0, index * 8 + 4);
  }
  return bytes;
}
