/** `turnpike logs`: the owner's log; with -f every further line, across interruptions. */
import { Command, InvalidArgumentError } from 'commander';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { asFailure, Failure } from './terminal/failure.ts';

export type Line =
  | {
      /** Of a line that is kept. */
      id?: number | string;
      node?: string;
      time: string;
      kind: 'console' | 'exception' | 'platform';
      level?: string;
      event?: string;
      text: string;
      stack?: string;
    }
  /** What `turnpike tail` asks for, too. */
  | { time: string; kind: 'request'; node?: string; method: string; path: string; status: number; ms: number };

/** What of a log is printed, and how. */
export interface LogView {
  json: boolean;
  shows(line: Line): boolean;
}

interface LogFlags {
  follow?: boolean;
  limit: number;
  since?: string;
}

const RECONNECT_MS = 1_000;

export function logsCommand(deps?: CommandDeps): Command {
  return new Command('logs')
    .description('show the log of your deployment')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .option('-f, --follow', 'go on with every further line; with --json one document a line')
    .option('-n, --limit <lines>', 'newest lines to begin with', wholeNumber, 100)
    .option('--since <time>', 'only lines from this ISO time on')
    .action(withSession(deps, logs));
}

async function logs(session: Session, given: string | undefined, flags: LogFlags): Promise<void> {
  const slug = slugOf(await session.project(), given);
  const query = new URLSearchParams({ limit: String(flags.limit), ...(flags.since ? { since: flags.since } : {}) });
  const path = `/_admin/${encodeURIComponent(slug)}/logs?${query}`;
  if (flags.follow) return follow(session, slug, path, { json: session.printer.json, shows: () => true });
  const document = await (await session.host()).own<{ entries: Line[]; missing?: string[] }>('GET', path);
  for (const node of document.missing ?? []) session.printer.progress(missingNode(node));
  session.printer.result(document, document.entries.map(lineText).join('\n'));
}

/** Each proof is accepted once, so a tail that reconnects needs a token; a new one when it has run out. */
export async function follow(session: Session, slug: string, path: string, view: LogView): Promise<void> {
  const host = await session.host();
  const key = session.deployKey;
  let token: string | undefined;
  let last = '';
  while (!session.terminal.signal.aborted) {
    const isNew = token === undefined;
    try {
      token ??= key ?? (await host.own<{ token: string }>('POST', `/_admin/session/${encodeURIComponent(slug)}`)).token;
      const headers = { authorization: `Bearer ${token}`, ...(last === '' ? {} : { 'last-event-id': last }) };
      for await (const { id, data } of host.events(path, headers)) {
        last = id || last;
        const line = JSON.parse(data) as Line;
        if (view.shows(line)) session.terminal.out(`${view.json ? JSON.stringify(line) : lineText(line)}\n`);
      }
    } catch (error) {
      if (session.terminal.signal.aborted) return;
      const failure = asFailure(error);
      const { status } = failure.document ?? {};
      // A token that worked has run out; what refuses a new one, or a proof, will refuse the next one too.
      if (!isNew && key === undefined && (status === 401 || status === 402)) token = undefined;
      else if (error instanceof Failure && failure.exit !== 'unreachable') throw failure;
      session.printer.progress(`… ${failure.message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}

export function missingNode(node: string): string {
  return `The node ${node} does not answer: its lines are missing.`;
}

export function lineText(line: Line): string {
  const start = line.node === undefined ? line.time : `${line.time}  ${line.node}`;
  if (line.kind === 'request') {
    const { method, path, status, ms } = line;
    return `${start}  request    ${method} ${path}  ${status}  ${ms} ms`;
  }
  const { kind, level, event, text, stack } = line;
  const label = kind === 'console' ? (level ?? 'log') : kind === 'platform' ? (event ?? 'platform') : 'exception';
  return `${start}  ${label.padEnd(9)}  ${stack ?? text}`;
}

export function wholeNumber(text: string): number {
  if (!/^\d{1,5}$/.test(text)) throw new InvalidArgumentError('It takes a whole number.');
  return Number(text);
}
