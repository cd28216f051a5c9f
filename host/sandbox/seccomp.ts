/**
 * The system call filter of a sandbox, as a classic BPF program: what is not on the list of calls.ts does not exist
 * (ENOSYS, on which C libraries fall back to older calls), so a call that a later kernel brings is refused, too.
 */
import { Problem } from '../shared/problem.ts';
import { ANY, type CallNumbers, LOOKED_INTO, OF_DATABASE, OF_MEMBER, OF_OBJECTS } from './calls.ts';

/**
 * `worker` may create neither processes nor files; `objects` may create files, and `database` both. `member` is `objects`
 * with TCP: in a network namespace whose only interface is its own loopback.
 */
export type SeccompProfile = 'worker' | 'objects' | 'member' | 'database';

const CALLS: Record<SeccompProfile, Record<string, CallNumbers>> = {
  worker: {},
  objects: OF_OBJECTS,
  member: OF_MEMBER,
  database: OF_DATABASE,
};

interface Architecture {
  /** `AUDIT_ARCH_*` of linux/audit.h. */
  audit: number;
  column: 0 | 1;
}

const ARCHITECTURES: Record<string, Architecture> = {
  x64: { audit: 0xc000003e, column: 0 },
  arm64: { audit: 0xc00000b7, column: 1 },
};

const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const refusal = (errno: number): number => 0x00050000 | errno;
const EPERM = refusal(1);
const EINVAL = refusal(22);
const ENOTTY = refusal(25);
const ENOSYS = refusal(38);
const ENOPROTOOPT = refusal(92);
const EAFNOSUPPORT = refusal(97);

const CLONE_THREAD = 0x00010000;
/** CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const CLONE_NEW = 0x00000080 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000;
/** O_CREAT, and O_TMPFILE without its O_DIRECTORY. */
const MAKES_FILE = 0o100 | 0o20000000;
const AF_UNIX = 1;
const AF_INET = 2;
const SOL_SOCKET = 1;
const SOL_TCP = 6;
/** TCP_NODELAY: it means nothing at the level of sockets, where this number is SO_DEBUG. */
const TCP_NODELAY = 1;
/** SO_REUSEADDR, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE; not those that attach a filter. */
const SOCKET_OPTIONS = [2, 7, 8, 9];
/** TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. */
const IOCTLS = [0x5401, 0x5413, 0x541b, 0x5421, 0x5450, 0x5451];
/** F_DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, OFD_GETLK, OFD_SETLK, OFD_SETLKW, DUPFD_CLOEXEC. */
const FCNTLS = [0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030];
/**
 * PR_SET_PDEATHSIG, GET_PDEATHSIG, GET_DUMPABLE, SET_KEEPCAPS, SET_NAME, GET_NAME, CAPBSET_READ, GET_SECUREBITS,
 * SET_NO_NEW_PRIVS, GET_NO_NEW_PRIVS, CAP_AMBIENT, SET_VMA.
 */
const PRCTLS = [1, 2, 3, 8, 15, 16, 23, 27, 38, 39, 47, 0x53564d41];
/** Calls of the x32 ABI carry this bit; the filter's numbers would not match them. */
const X32_BIT = 0x40000000;

/** Offsets in `struct seccomp_data`; arguments are 64 bits, little-endian, and the kernel reads the low half of these. */
const NUMBER = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;

const LOAD = 0x20;
const JUMP_EQUAL = 0x15;
const JUMP_AT_LEAST = 0x35;
const JUMP_ANY_BIT = 0x45;
const RETURN = 0x06;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, operand: number];

/**
 * @returns the program as an array of `struct sock_filter`
 * @throws Problem start_failed for an architecture without a table
 */
export function seccompProgram(profile: SeccompProfile, architecture: string = process.arch): Uint8Array {
  const known = ARCHITECTURES[architecture];
  if (!known) {
    throw new Problem(
      'start_failed',
      `There is no system call filter for ${architecture}; run the host on x64 or arm64.`,
    );
  }
  const program: Instruction[] = [
    [LOAD, 0, 0, ARCH],
    [JUMP_EQUAL, 1, 0, known.audit],
    [RETURN, 0, 0, KILL_PROCESS],
    [LOAD, 0, 0, NUMBER],
    [JUMP_AT_LEAST, 0, 1, X32_BIT],
    [RETURN, 0, 0, KILL_PROCESS],
  ];
  for (const [name, body] of Object.entries(lookInto(profile))) {
    const number = LOOKED_INTO[name as keyof typeof LOOKED_INTO][known.column];
    if (number >= 0) program.push([JUMP_EQUAL, 0, body.length, number], ...body);
  }
  for (const [first, last] of ranges(allowedCalls(profile).map((call) => call[known.column]))) {
    program.push(
      [JUMP_AT_LEAST, 3, 0, last + 1],
      [JUMP_AT_LEAST, 0, 1, first],
      [RETURN, 0, 0, ALLOW],
      [RETURN, 0, 0, ENOSYS],
    );
  }
  program.push([RETURN, 0, 0, ENOSYS]);
  return assemble(program);
}

/** Calls that are allowed whatever their arguments are: newer kernels (5.11) remember these and skip the program. */
function allowedCalls(profile: SeccompProfile): CallNumbers[] {
  return [...Object.values(ANY), ...Object.values(CALLS[profile])];
}

/** What becomes of a call by its arguments; each ends in a return. */
function lookInto(profile: SeccompProfile): Record<keyof typeof LOOKED_INTO, Instruction[]> {
  const unixOnly = oneOf(0, [AF_UNIX], EAFNOSUPPORT);
  const member = profile === 'member';
  // workerd makes no processes once it runs, and files only of objects.
  const worker = profile !== 'database';
  const reading = (flags: number): Instruction[] =>
    profile === 'worker' ? without(flags, MAKES_FILE) : [[RETURN, 0, 0, ALLOW]];
  return {
    // clone3 is not there: its flags are in memory, where a filter cannot look. The C library then uses clone.
    clone: [
      [LOAD, 0, 0, argument(0)],
      [JUMP_ANY_BIT, 0, 1, CLONE_NEW],
      [RETURN, 0, 0, EPERM],
      [JUMP_ANY_BIT, worker ? 1 : 0, 0, CLONE_THREAD],
      ...(worker ? ([[RETURN, 0, 0, EPERM]] satisfies Instruction[]) : []),
      [RETURN, 0, 0, ALLOW],
    ],
    // There is no network inside, but some families (vsock, netlink, alg) do not belong to a network namespace.
    socket: member ? oneOf(0, [AF_UNIX, AF_INET], EAFNOSUPPORT) : unixOnly,
    socketpair: unixOnly,
    setsockopt: [
      ...(member ? noDelay() : []),
      [LOAD, 0, 0, argument(1)],
      [JUMP_EQUAL, 1, 0, SOL_SOCKET],
      [RETURN, 0, 0, ENOPROTOOPT],
      ...oneOf(2, SOCKET_OPTIONS, ENOPROTOOPT),
    ],
    open: reading(1),
    openat: reading(2),
    ioctl: oneOf(1, IOCTLS, ENOTTY),
    fcntl: oneOf(1, FCNTLS, EINVAL),
    prctl: oneOf(0, PRCTLS, EINVAL),
  };
}

/** Allows the call where the argument is one of these values. */
function oneOf(index: number, values: number[], otherwise: number): Instruction[] {
  return [
    [LOAD, 0, 0, argument(index)],
    ...values.map((value, at): Instruction => [JUMP_EQUAL, values.length - at, 0, value]),
    [RETURN, 0, 0, otherwise],
    [RETURN, 0, 0, ALLOW],
  ];
}

/** Allows TCP_NODELAY; whatever else is asked is looked at by what follows. */
function noDelay(): Instruction[] {
  return [
    [LOAD, 0, 0, argument(1)],
    [JUMP_EQUAL, 0, 3, SOL_TCP],
    [LOAD, 0, 0, argument(2)],
    [JUMP_EQUAL, 0, 1, TCP_NODELAY],
    [RETURN, 0, 0, ALLOW],
  ];
}

/** Allows the call where none of these bits is set. */
function without(index: number, bits: number): Instruction[] {
  return [
    [LOAD, 0, 0, argument(index)],
    [JUMP_ANY_BIT, 0, 1, bits],
    [RETURN, 0, 0, EPERM],
    [RETURN, 0, 0, ALLOW],
  ];
}

/** Numbers in ascending order, as first and last of each run without a gap. */
function ranges(numbers: number[]): [first: number, last: number][] {
  const found: [number, number][] = [];
  for (const number of numbers.filter((one) => one >= 0).sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && number <= last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  return found;
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
