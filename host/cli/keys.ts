/** `turnpike keys`: deploy keys, which do some of what the wallet may do: for CI, which should not have the wallet. */
import { Command, InvalidArgumentError } from 'commander';
import { KEY_ACTION_NAMES, KEY_ACTIONS, type KeyAction } from '../shared/deploy-keys.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, DEPLOY_KEY_VARIABLE, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

interface KeyView {
  id: string;
  name: string | null;
  slugs: string[] | 'all';
  actions: string[];
  createdAt: string;
  expiresAt: string;
  usedAt: string | null;
}

interface CreateFlags {
  slugs?: string[];
  all?: boolean;
  actions: KeyAction[];
  until: string;
  name?: string;
}

const UNIT_MS = { h: 3_600_000, d: 86_400_000 };

export function keysCommand(deps?: CommandDeps): Command {
  const command = new Command('keys').description('deploy keys: for CI, in place of your wallet').addHelpText(
    'after',
    `
Actions:
${Object.entries(KEY_ACTIONS)
  .map(([action, what]) => `  ${action.padEnd(9)} ${what}`)
  .join('\n')}
No key deploys a new slug, renews, deletes, or changes prices, payTo, domains or keys.
With ${DEPLOY_KEY_VARIABLE} set to a key, the commands for these actions need no wallet.`,
  );
  command
    .command('create')
    .description('make a key; it is shown once')
    .option('--slugs <names>', 'what it is for, separated by commas; default: the project', words)
    .option('--all', 'for all of your deployments, with those to come')
    .option('--actions <names>', `what it may do, separated by commas: ${KEY_ACTION_NAMES.join(', ')}`, actions, [
      'update',
    ])
    .option('--until <time>', 'when it ends: 90d, 12h, or an ISO time', '90d')
    .option('--name <text>', 'to tell keys apart')
    .action(withSession(deps, create));
  command
    .command('list')
    .description('list your keys, without the keys themselves')
    .action(
      withSession(deps, async (session) => {
        const found = await (await session.host()).own<{ keys: KeyView[] }>('GET', '/_admin/keys');
        const rows = found.keys.map((key) => [
          key.id,
          key.name ?? '',
          scopeOf(key),
          key.actions.join(','),
          `until ${key.expiresAt}`,
          key.usedAt === null ? 'never used' : `used ${key.usedAt}`,
        ]);
        session.printer.result(found, table(rows) || 'none');
      }),
    );
  command
    .command('revoke')
    .description('end a key at once')
    .argument('<id>', 'see turnpike keys list')
    .action(
      withSession(deps, async (session, id: string) => {
        await (await session.host()).own('DELETE', `/_admin/keys/${encodeURIComponent(id)}`);
        session.printer.result({ id, revoked: true }, `${id} is revoked`);
      }),
    );
  return command;
}

async function create(session: Session, { slugs, all, name, until, ...flags }: CreateFlags): Promise<void> {
  if (slugs && all) throw new Failure('usage', 'Give --slugs, or --all.');
  const project = all || slugs ? undefined : await session.project();
  const key = await (await session.host()).own<KeyView & { key: string }>('POST', '/_admin/keys', {
    slugs: all ? 'all' : (slugs ?? (project && [slugOf(project, undefined)])),
    actions: flags.actions,
    until: endOf(until, Date.now()),
    ...(name === undefined ? {} : { name }),
  });
  session.printer.progress(`key     ${key.id}: ${key.actions.join(', ')} of ${scopeOf(key)}, until ${key.expiresAt}`);
  session.printer.progress(`        It is not shown again. Set ${DEPLOY_KEY_VARIABLE} to it, as a secret of your CI.`);
  session.printer.result(key, key.key);
}

function scopeOf({ slugs }: KeyView): string {
  return slugs === 'all' ? 'all' : slugs.join(',');
}

/** `90d`, `12h` or an ISO time, as an ISO time. @throws Failure `usage` */
export function endOf(text: string, now: number): string {
  const [, count, unit] = /^([1-9]\d{0,4})([hd])$/.exec(text) ?? [];
  const at = unit ? now + Number(count) * UNIT_MS[unit as 'h' | 'd'] : Date.parse(text);
  if (Number.isNaN(at) || (!unit && !/^\d{4}-\d\d-\d\d/.test(text)))
    throw new Failure('usage', `Not understood: --until ${text}. It takes 90d, 12h, or a time such as 2027-03-01.`);
  return new Date(at).toISOString();
}

function words(text: string): string[] {
  return text.split(',').map((word) => word.trim());
}

function actions(text: string): KeyAction[] {
  const asked = words(text);
  const unknown = asked.find((word) => !Object.hasOwn(KEY_ACTIONS, word));
  if (unknown !== undefined)
    throw new InvalidArgumentError(`There is no action ${unknown}. It takes ${KEY_ACTION_NAMES.join(', ')}.`);
  return asked as KeyAction[];
}
