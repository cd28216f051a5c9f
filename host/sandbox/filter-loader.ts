/**
 * Loads the system call filter where no bubblewrap does it: a line of Perl that runs last, as the tenant's user, and
 * becomes the program. Debian and its relatives always have Perl (perl-base), and it can make any system call.
 */
import { Problem } from '../shared/problem.ts';
import { LOOKED_INTO } from './calls.ts';
import { SECCOMP_FD } from './confinement.ts';

/** linux/prctl.h and linux/seccomp.h. */
const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2;

/**
 * @param perl its path inside
 * @returns what stands before the program's own command line; no_new_privs must be set by then
 */
export function filterLoader(perl: string, architecture: string = process.arch): string[] {
  if (architecture !== 'x64' && architecture !== 'arm64') {
    throw new Problem(
      'start_failed',
      `There is no system call filter for ${architecture}; run the host on x64 or arm64.`,
    );
  }
  const prctl = LOOKED_INTO.prctl[architecture === 'x64' ? 0 : 1];
  return [
    perl,
    '-e',
    // `struct sock_fprog`: the number of instructions, and where they are.
    `open my $in, '<&=', ${SECCOMP_FD} or die "no filter: $!\\n"; binmode $in; local $/; my $filter = <$in>; close $in;` +
      ` my $program = pack 'S x6 P', length($filter) / 8, $filter;` +
      ` syscall(${prctl}, ${PR_SET_SECCOMP}, ${SECCOMP_MODE_FILTER}, $program) == 0 or die "PR_SET_SECCOMP: $!\\n";` +
      ` exec { $ARGV[0] } @ARGV or die "$ARGV[0]: $!\\n";`,
    '--',
  ];
}
