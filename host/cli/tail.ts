/** `turnpike tail`: `logs --follow` from now on, with each request, and filters as `wrangler tail` has them. */
import { Command, InvalidArgumentError, Option } from 'commander';
import { follow, type Line } from './logs.ts';
import { slugOf } from './project/manifest.ts';
import { collect } from './project/options.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';

export interface TailFlags {
  format?: 'pretty' | 'json';
  status?: 'ok' | 'error';
  method?: string[];
  search?: string;
  samplingRate?: number;
}

export function tailCommand(deps?: CommandDeps): Command {
  return new Command('tail')
    .description('show requests, console lines and exceptions of your deployment as they come')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .addOption(new Option('--format <name>', 'pretty, or json: one document a line').choices(['pretty', 'json']))
    .addOption(
      new Option('--status <kind>', 'error: requests answered 500 and above, and exceptions; ok: all else').choices([
        'ok',
        'error',
      ]),
    )
    .option('--method <name>', 'of requests, only those of this method; repeatable', collect)
    .option('--search <text>', 'only what contains this text')
    .option('--sampling-rate <share>', 'of requests, only this share, such as 0.1', share)
    .addHelpText(
      'after',
      '\nIt goes on across interruptions and ends with Ctrl-C. Requests are not kept: "turnpike logs" has no earlier ones.',
    )
    .action(withSession(deps, tail));
}

async function tail(session: Session, given: string | undefined, flags: TailFlags): Promise<void> {
  const slug = slugOf(await session.project(), given);
  const json = flags.format === undefined ? session.printer.json : flags.format === 'json';
  const path = `/_admin/${encodeURIComponent(slug)}/logs?limit=0&requests=true`;
  await follow(session, slug, path, { json, shows: (line) => isShown(line, flags, Math.random) });
}

/** @param random 0 and more, less than 1 */
export function isShown(line: Line, flags: TailFlags, random: () => number): boolean {
  const { status, method, search, samplingRate = 1 } = flags;
  const isRequest = line.kind === 'request';
  if (status !== undefined) {
    const isError = isRequest ? line.status >= 500 : line.kind === 'exception';
    if (isError !== (status === 'error')) return false;
  }
  if (isRequest && method && !method.some((one) => one.toUpperCase() === line.method)) return false;
  if (search !== undefined) {
    const text = isRequest ? `${line.method} ${line.path} ${line.status}` : `${line.text}\n${line.stack ?? ''}`;
    if (!text.includes(search)) return false;
  }
  return !isRequest || samplingRate >= 1 || random() < samplingRate;
}

function share(text: string): number {
  const value = Number(text);
  if (!/^\d*\.?\d+$/.test(text) || value <= 0 || value > 1)
    throw new InvalidArgumentError('It takes a number above 0, up to 1.');
  return value;
}
