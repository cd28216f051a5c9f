/** `turnpike tenants`: every deployment on this host, and what its operator decides about one. */
import { Command, InvalidArgumentError } from 'commander';
import { confirmDeletion } from './delete.ts';
import { type Line, lineText, missingNode, wholeNumber } from './logs.ts';
import { type Metadata, metadataText, stateText } from './metadata-view.ts';
import { callOperator, operatorEvents } from './operator-client.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { asFailure, Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

interface Tenants {
  tenants: {
    slug: string;
    state: string;
    suspended: { since: string; reason: string } | null;
    owner: string;
    version: number;
    builtin: boolean;
    expiresAt: string | null;
    note: string | null;
  }[];
}

/** As its operator sees it. */
type Tenant = Metadata & { note: string | null };

interface Limits {
  slug: string;
  limits: Record<string, { value: number; source: string }>;
}

const RECONNECT_MS = 1_000;

export function tenantsCommand(deps?: CommandDeps): Command {
  const command = new Command('tenants').description(
    'operator: every deployment on this host, and what is done to one',
  );
  command.command('list', { isDefault: true }).description('list every deployment').action(withSession(deps, list));
  command
    .command('suspend')
    .description('serve nobody and run nothing; its days, domains and data stay')
    .argument('<slug>')
    .argument('<reason>', 'callers and the owner are told; at most 500 characters')
    .action(
      withSession(deps, async (session, slug: string, reason: string) => {
        const tenant = await act(session, 'POST', slug, '/suspend', { reason });
        session.printer.result(tenant, `${slug} is suspended; nothing of it runs`);
      }),
    );
  command
    .command('resume')
    .description('end a suspension')
    .argument('<slug>')
    .action(
      withSession(deps, async (session, slug: string) => {
        const tenant = await act(session, 'POST', slug, '/resume');
        const rest = tenant.state === 'active' ? 'is served' : `is not suspended; it is ${tenant.state}`;
        session.printer.result(tenant, `${slug} ${rest}`);
      }),
    );
  command
    .command('extend')
    .description('give days for nothing')
    .argument('<slug>')
    .argument('<days>', '1 to 3650', wholeNumber)
    .action(
      withSession(deps, async (session, slug: string, days: number) => {
        const tenant = await act(session, 'POST', slug, '/extend', { days });
        session.printer.result(tenant, `${slug} runs until ${tenant.expiresAt}`);
      }),
    );
  command
    .command('delete')
    .description('decommission it, as its owner would')
    .argument('<slug>')
    .action(
      withSession(deps, async (session, slug: string) => {
        await confirmDeletion(session, slug);
        session.printer.result(await act(session, 'DELETE', slug), `${slug} is decommissioned`);
      }),
    );
  command
    .command('limits')
    .description('show the limits in force, or set some for this tenant alone')
    .argument('<slug>')
    .argument('[limits...]', 'such as storage.kvBytes=2000000000; storage.kvBytes=default takes it back', limit)
    .option('--reset', 'take all of them back')
    .action(withSession(deps, limits));
  command
    .command('logs')
    .description("show its owner's log")
    .argument('<slug>')
    .option('-f, --follow', 'go on with every further line; with --json one document a line')
    .option('-n, --limit <lines>', 'newest lines to begin with', wholeNumber, 100)
    .option('--since <time>', 'only lines from this ISO time on')
    .action(withSession(deps, logs));
  command
    .command('note')
    .description('show what operators noted of it, or write another note; its owner does not see it')
    .argument('<slug>')
    .argument('[text]', 'takes the place of the note; "" removes it')
    .action(
      withSession(deps, async (session, slug: string, note: string | undefined) => {
        const tenant =
          note === undefined ? await act(session, 'GET', slug) : await act(session, 'PUT', slug, '/note', { note });
        session.printer.result({ slug, note: tenant.note }, tenant.note ?? 'no note');
      }),
    );
  command
    .command('get')
    .description('show one of them')
    .argument('<slug>')
    .action(
      withSession(deps, async (session, slug: string) => {
        const tenant = await act(session, 'GET', slug);
        const { note } = tenant;
        session.printer.result(tenant, `${metadataText(tenant)}${note ? `\n${table([['note', note]])}` : ''}`);
      }),
    );
  return command;
}

async function list(session: Session): Promise<void> {
  const found = JSON.parse((await callOperator(session, 'GET', '/tenants')).text) as Tenants;
  const rows = found.tenants.map((tenant) => [
    tenant.slug,
    stateText(tenant),
    String(tenant.version),
    tenant.builtin ? 'built in' : tenant.owner,
    tenant.expiresAt ?? 'never',
    tenant.note ?? '',
  ]);
  session.printer.result(found, table([['slug', 'state', 'version', 'owner', 'expires', 'note'], ...rows]));
}

async function act(session: Session, method: string, slug: string, path = '', body?: object): Promise<Tenant> {
  return JSON.parse((await callOperator(session, method, `${pathOf(slug)}${path}`, body)).text) as Tenant;
}

async function limits(
  session: Session,
  slug: string,
  named: Record<string, number | null> | [],
  { reset }: { reset?: boolean },
): Promise<void> {
  // Commander gives an empty list where nothing was named.
  const given = Array.isArray(named) ? undefined : named;
  if (given && reset) throw new Failure('usage', 'Name limits, or give --reset; not both.');
  const method = given ? 'PUT' : reset ? 'DELETE' : 'GET';
  const { text } = await callOperator(session, method, `${pathOf(slug)}/limits`, given);
  const found = JSON.parse(text) as Limits;
  const rows = Object.entries(found.limits).map(([name, { value, source }]) => [name, value, source]);
  session.printer.result(found, table(rows));
}

/** Adds one to those that were named before it. */
function limit(text: string, before?: Record<string, number | null>): Record<string, number | null> {
  const [, name, value] = /^([a-zA-Z.]+)=(\d{1,15}|default)$/.exec(text) ?? [];
  if (name === undefined || value === undefined)
    throw new InvalidArgumentError('It looks like storage.kvBytes=2000000000, or storage.kvBytes=default.');
  return { ...before, [name]: value === 'default' ? null : Number(value) };
}

async function logs(
  session: Session,
  slug: string,
  flags: { follow?: boolean; limit: number; since?: string },
): Promise<void> {
  const query = new URLSearchParams({ limit: String(flags.limit), ...(flags.since ? { since: flags.since } : {}) });
  const path = `${pathOf(slug)}/logs?${query}`;
  if (flags.follow) return follow(session, path);
  const document = JSON.parse((await callOperator(session, 'GET', path)).text) as {
    entries: Line[];
    missing?: string[];
  };
  for (const node of document.missing ?? []) session.printer.progress(missingNode(node));
  session.printer.result(document, document.entries.map(harmlessText).join('\n'));
}

/** A tenant writes what it likes into its log: nothing of it may command the operator's terminal. */
function harmlessText(line: Line): string {
  return lineText(line).replace(/[^\P{Cc}\n\t]/gu, '\u{fffd}');
}

/** Across restarts of the host. */
async function follow(session: Session, path: string): Promise<void> {
  const { terminal, printer } = session;
  let last = '';
  while (!terminal.signal.aborted) {
    try {
      for await (const { id, data } of operatorEvents(session, path, last)) {
        last = id || last;
        const line = JSON.parse(data) as Line;
        terminal.out(`${printer.json ? JSON.stringify(line) : harmlessText(line)}\n`);
      }
    } catch (error) {
      if (terminal.signal.aborted) return;
      const failure = asFailure(error);
      if (failure.exit === 'refused' || last === '') throw failure;
      printer.progress(`… ${failure.message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}

function pathOf(slug: string): string {
  return `/tenants/${encodeURIComponent(slug)}`;
}
