/** `turnpike pay <url>`: calls any URL and settles its 402, in MPP or x402, up to a limit. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { readAccount } from './account-file.ts';
import { answerBytes, readBytes } from './answer.ts';
import { type PayableRequest, payRequest } from './paying/pay-request.ts';
import { collect } from './project/options.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure, reportedFailure } from './terminal/failure.ts';

interface PayFlags {
  request?: string;
  header?: string[];
  body?: string;
  include?: boolean;
  credit?: boolean;
}

export function payCommand(deps?: CommandDeps): Command {
  return new Command('pay')
    .description('call a URL and pay what it asks, up to --max-pay')
    .argument('<url>')
    .option('-X, --request <method>', 'method; default: GET, or POST with a body')
    .option('-H, --header <name: value>', 'header; repeatable', collect)
    .option('-d, --body <text>', 'body; @file for a file, @- for stdin')
    .option('--credit', 'pay from the credit of the account (turnpike account) instead of the wallet')
    .option('-i, --include', 'show status and headers of the answer too')
    .action(withSession(deps, pay))
    .addHelpText(
      'after',
      `
The answer goes to stdout as it came; with --json it is described, and the body is in "body".
Only known dollar tokens are paid; others need --allow-asset. A body that is a JSON object or list is sent as
application/json, unless a header says otherwise.

Example:
  $ turnpike pay https://host.example/speech/v1/listen --max-pay 0.25 -H "content-type: audio/wav" -d @talk.wav`,
    );
}

async function pay(session: Session, target: string, flags: PayFlags): Promise<void> {
  const url = URL.parse(target);
  if (!url || !/^https?:$/.test(url.protocol)) throw new Failure('usage', `Not a URL: ${target}`);
  session.calls(url);
  const body = await readBody(session, flags.body);
  const request: PayableRequest = {
    url,
    method: (flags.request ?? (body === undefined ? 'GET' : 'POST')).toUpperCase(),
    headers: { ...jsonType(body), ...parseHeaders(flags.header ?? []) },
    body,
    signal: session.terminal.signal,
  };
  const { response, paid } = flags.credit
    ? await fromCredit(session, request)
    : await payRequest(request, await session.paying(`for ${url.host}`, false));
  const bytes = session.printer.json ? await readBytes(response) : Buffer.alloc(0);
  if (session.printer.json) {
    session.printer.result(
      {
        status: response.status,
        headers: Object.fromEntries(response.headers),
        paid: paid ?? null,
        body: asText(bytes),
      },
      '',
    );
  } else {
    if (flags.include) {
      const lines = [...response.headers].map(([name, value]) => `${name}: ${value}`);
      session.terminal.out(`HTTP ${response.status}\n${lines.join('\n')}\n\n`);
    }
    let last = 10;
    for await (const piece of answerBytes(response)) {
      last = piece.at(-1) ?? last;
      session.terminal.out(piece);
    }
    // The prompt, or the message on a failure, begins on a line of its own; the answer itself stays as it came.
    if (last !== 10 && (session.terminal.outIsScreen || response.status >= 400)) session.terminal.err('');
  }
  if (response.status >= 400) {
    const what = paid === undefined ? '' : ' (most servers charge only for what succeeds)';
    throw reportedFailure(
      response.status >= 500 ? 'unreachable' : 'refused',
      `${url.host} answered ${response.status}${what}.`,
    );
  }
}

/** The account is that of the URL's own host: its credential goes nowhere else. */
async function fromCredit(session: Session, request: PayableRequest) {
  const { credential } = await readAccount(session.terminal, new URL(request.url.origin));
  const { payFromCredit } = await import('./paying/credit.ts');
  return payFromCredit(request, {
    credential,
    maxMicroUsd: session.maxMicroUsd,
    approve: (price) => session.approveCredit(price),
    fetch: session.fetch,
  });
}

async function readBody(session: Session, text: string | undefined): Promise<PayableRequest['body']> {
  if (text === undefined) return undefined;
  if (text === '@-') return session.terminal.readInput();
  if (!text.startsWith('@')) return text;
  try {
    return new Uint8Array(await readFile(resolve(session.terminal.cwd, text.slice(1))));
  } catch (error) {
    throw new Failure(
      'usage',
      `The body cannot be read from ${text.slice(1)} (${(error as NodeJS.ErrnoException).code}).`,
    );
  }
}

/** What is JSON is sent as such: services would take it for plain text, and charge for that. */
function jsonType(body: PayableRequest['body']): Record<string, string> {
  try {
    const value: unknown = JSON.parse(
      typeof body === 'string' ? body : new TextDecoder('utf-8', { fatal: true }).decode(body),
    );
    return typeof value === 'object' && value !== null ? { 'content-type': 'application/json' } : {};
  } catch {
    return {};
  }
}

function parseHeaders(lines: string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const match = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*(.*)$/.exec(line);
      if (!match) throw new Failure('usage', `Not a header: ${line}. It looks like "name: value".`);
      return [(match[1] ?? '').toLowerCase(), match[2] ?? ''];
    }),
  );
}

/** Text as text, other bytes in base64. */
function asText(bytes: Buffer): string | { base64: string } {
  const text = bytes.toString('utf8');
  return Buffer.from(text, 'utf8').equals(bytes) ? text : { base64: bytes.toString('base64') };
}
