/** What the host says to a person: the start screen and `--help`. */

import { settings } from './configuration.ts';
import type { Folders } from './folders.ts';
import type { RunningHost } from './host.ts';
import { NETWORK_FAILS } from './start-failures.ts';

export function startScreen(host: Omit<RunningHost, 'stop'>, folders: Folders, version: string): string {
  const { network } = host;
  const lines = [
    '',
    `  Turnpike ${version}`,
    '',
    `  public     ${host.url}`,
    `  operator   http://127.0.0.1:${host.adminPort}  (metrics, operator API)`,
    `  console    http://127.0.0.1:${host.adminPort}/console  (turnpike console prints a link that logs in)`,
    `  data       ${folders.data}`,
    `  isolation  ${host.isolation.level}: ${host.isolation.detail}`,
    `  network    ${network.name}${network.testMoney ? ' – test money, worth nothing' : ''}`,
  ];
  if (network.fault !== undefined) lines.push(`             ${network.fault}: ${NETWORK_FAILS}`);
  for (const [index, wallet] of network.wallets.entries()) {
    lines.push(`  ${index === 0 ? 'wallets   ' : '          '} ${wallet}`);
  }
  if (network.wallets.length > 0) lines.push(`             keys in ${folders.data}/local-network.json`);
  if (host.freshOperatorToken !== undefined) {
    lines.push('', `  operator token (shown once): ${host.freshOperatorToken}`);
    lines.push(`  console, good once within an hour: ${host.consoleLink}`);
  }
  lines.push('', `  Next: the two-minute tour in README.md, or ${host.url}/docs`, '');
  return `${lines.join('\n')}\n`;
}

export function helpText(): string {
  const all = settings();
  const width = Math.max(...all.map((setting) => setting.flag.length));
  const rows = all.map(
    ({ flag, description, default: value }) => `  ${flag.padEnd(width)}  ${description} [${JSON.stringify(value)}]`,
  );
  return `Usage: npm start -- [--setting value ...]

Starts the host. Every setting can also stand in turnpike.host.json (nested, as in config/turnpike.default.json) or in the
environment (--storage-s3-bucket is TURNPIKE_STORAGE_S3_BUCKET). Flags win over the environment, that over the file.

Settings, with their defaults:
${rows.join('\n')}
`;
}
