/** What an operator should look at, and what to do about it: asked of what the host knows already. */
import { formatUsd, parseUsd } from '../../../shared/money.ts';
import type { OperatorDeps } from './endpoint.ts';

export interface AttentionItem {
  level: 'bad' | 'warn';
  what: string;
  todo: string;
  /** The console’s page about it. */
  page: string;
}

const LEAST_DISK_SHARE = 0.1;
const LEAST_DISK_BYTES = 1_000_000_000;
const CERTIFICATE_SOON_MS = 14 * 86_400_000;
/** A backup by schedule may be as old as this many of its times apart, ms. */
const OLD_BACKUP_MS = 8 * 86_400_000;
const MOST_OF_A_KIND = 5;

export async function attention(deps: OperatorDeps): Promise<AttentionItem[]> {
  const found = await Promise.all([
    processes(deps),
    money(deps),
    disk(deps),
    tenants(deps),
    domains(deps),
    certificates(deps),
    backups(deps),
  ]);
  const items = found.flat();
  return [...items.filter(({ level }) => level === 'bad'), ...items.filter(({ level }) => level === 'warn')];
}

async function processes({ health, describeHost }: OperatorDeps): Promise<AttentionItem[]> {
  const { parts } = health().body as { parts: Record<string, { state: string; detail?: string }> };
  const unwell = Object.entries(parts).flatMap(([name, { state, detail }]): AttentionItem[] => {
    // Told by `money`.
    if (state === 'ready' || state === 'off' || name === 'payouts') return [];
    const what = `${name} is ${state}${detail ? `: ${detail}` : ''}.`;
    return [
      { level: 'bad', what, todo: 'The log of the host says why. A process that died is started again.', page: '/' },
    ];
  });
  const restarted = describeHost
    .processes()
    .processes.filter(({ restarts }) => restarts > 2)
    .map(
      ({ name, restarts }): AttentionItem => ({
        level: 'warn',
        what: `${name} was started again ${restarts} times.`,
        todo: 'Look for its error in the log of the host.',
        page: '/',
      }),
    );
  return [...unwell, ...restarted];
}

async function money({ payments: { ledger } }: OperatorDeps): Promise<AttentionItem[]> {
  const items: AttentionItem[] = [];
  const stopped = ledger.stopped();
  if (stopped) {
    items.push({
      level: 'bad',
      what: `Payouts and refunds are stopped: ${stopped.violations.map(({ what }) => what).join('; ')}.`,
      todo: 'Compare the books with the chains; when the cause is known, let payouts go on.',
      page: '/money',
    });
  }
  const open = await ledger.open();
  for (const [kind, level, what, todo] of [
    ['stuck', 'bad', 'could not be sent', 'Send it by hand and note the transaction, or try it again.'],
    [
      'refund-owed',
      'warn',
      'are owed to callers as refunds',
      'They are sent by themselves; try one again if it stays.',
    ],
    ['pending-settlement', 'warn', 'wait for a chain’s answer', 'Nothing, unless it stays for an hour.'],
    ['tenant-debt', 'warn', 'are owed by tenants', 'It is held back from their revenue; waive what never comes.'],
  ] as const) {
    const items_ = open.filter((item) => item.kind === kind);
    if (items_.length === 0) continue;
    const sum = items_.reduce((total, { amount }) => total + parseUsd(amount), 0n);
    items.push({
      level,
      what: `${items_.length} ${items_.length === 1 ? 'payment' : 'payments'} of ${formatUsd(sum as never)} USD together ${what}.`,
      todo,
      page: '/money',
    });
  }
  const facilitator = ledger.facilitator();
  if (facilitator?.problem !== undefined) {
    items.push({
      level: 'bad',
      what: `The x402 facilitator at ${facilitator.host} does not work: ${facilitator.problem}.`,
      todo: 'Check payments.x402.facilitator and its key. Until it works, payments by x402 wait or are refused.',
      page: '/money',
    });
  }
  const { tenants } = await ledger.gas();
  const used = tenants.filter(({ isUsedUp }) => isUsedUp).length;
  if (used > 0) {
    items.push({
      level: 'warn',
      what: `${used} ${used === 1 ? 'tenant has' : 'tenants have'} used up today’s budget for gas, and are not offered x402 until tomorrow.`,
      todo: 'Raise payments.gas.perDay if they should be.',
      page: '/money',
    });
  }
  return items;
}

async function disk({ describeHost }: OperatorDeps): Promise<AttentionItem[]> {
  const { free, total } = await describeHost.disk();
  if (free > total * LEAST_DISK_SHARE && free > LEAST_DISK_BYTES) return [];
  return [
    {
      level: free < LEAST_DISK_BYTES ? 'bad' : 'warn',
      what: `The disk of the data folder has ${Math.round(free / 1e6)} MB left, ${Math.round((free / total) * 100)} %.`,
      todo: 'Free some, or give it a larger disk: without space nothing can be stored, nor sold.',
      page: '/',
    },
  ];
}

async function tenants({ control: { runtime } }: OperatorDeps): Promise<AttentionItem[]> {
  return runtime
    .list()
    .filter(({ status }) => status.retryAt !== undefined)
    .slice(0, MOST_OF_A_KIND)
    .map(({ slug, status }) => ({
      level: 'warn',
      what: `${slug} keeps failing and waits before its next start${status.lastExit ? `: ${status.lastExit.detail}` : '.'}`,
      todo: 'Its owner sees why in its log. Suspend it if it troubles others.',
      page: `/tenants/${slug}`,
    }));
}

async function domains({ control }: OperatorDeps): Promise<AttentionItem[]> {
  const failing = (await control.domains.all(1_000)).filter(
    ({ failingSince, state, reason }) => failingSince !== null || (state === 'verified' && reason !== null),
  );
  if (failing.length === 0) return [];
  const [first] = failing;
  return [
    {
      level: 'warn',
      what: `${failing.length} ${failing.length === 1 ? 'domain needs' : 'domains need'} a look, such as ${first?.domain}: ${first?.reason ?? 'its record is missing'}.`,
      todo: 'Tell its owner, whose DNS record is missing, or look why no certificate comes.',
      page: '/domains',
    },
  ];
}

async function certificates({ describeHost }: OperatorDeps): Promise<AttentionItem[]> {
  const now = Date.now();
  return (await describeHost.certificates())
    .filter(({ validTo, reason }) =>
      validTo === undefined ? reason !== undefined : validTo - now < CERTIFICATE_SOON_MS,
    )
    .slice(0, MOST_OF_A_KIND)
    .map(({ names, validTo, reason }) => ({
      level: validTo === undefined || validTo <= now ? 'bad' : 'warn',
      what:
        validTo === undefined
          ? `There is no certificate for ${names.join(', ')}: ${reason}.`
          : `The certificate for ${names.join(', ')} ${validTo <= now ? 'has expired' : `expires on ${new Date(validTo).toISOString().slice(0, 10)}`}.`,
      todo: 'Put a new file in its place, or see why the authority gives none.',
      page: '/domains',
    }));
}

async function backups({ control, describeHost }: OperatorDeps): Promise<AttentionItem[]> {
  const { target, schedule } = control.config.backup;
  if (schedule === '')
    return [
      {
        level: 'warn',
        what: 'No backups are made by themselves.',
        todo: 'Set backup.schedule, backup.target and backup.passphraseFile.',
        page: '/backups',
      },
    ];
  try {
    const [newest] = await describeHost.backups();
    if (newest && Date.now() - newest.at < OLD_BACKUP_MS) return [];
    const what = newest ? `The newest backup is ${newest.id}.` : `There is no backup at ${target} yet.`;
    return [{ level: 'warn', what, todo: 'Make one now, and look in the log why none was made.', page: '/backups' }];
  } catch (error) {
    return [
      {
        level: 'bad',
        what: `Backups at ${target} cannot be listed: ${(error as Error).message}`,
        todo: 'Check the folder or the bucket, and its keys.',
        page: '/backups',
      },
    ];
  }
}
