/** Rows about static files of a deployment, which the edge serves itself. */
import { randomBytes } from 'node:crypto';
import { compare } from '../compare.ts';
import { caddyFiles, ourFiles } from '../peers/file-servers.ts';
import { SharedSubjects } from '../subject.ts';
import type { RowResult } from '../table.ts';
import { target } from './requests.ts';

const SIZES = [
  { id: 'assets-10k', title: 'Static file, 10 KiB (32 connections)', path: '/10k.png', bytes: 10_240 },
  { id: 'assets-1m', title: 'Static file, 1 MiB (32 connections)', path: '/1m.png', bytes: 1_048_576 },
];

export function fileRows(): { id: string; run(): Promise<RowResult>; subjects: SharedSubjects }[] {
  const subjects = new SharedSubjects();
  const contents = Object.fromEntries(SIZES.map(({ path, bytes }) => [path, randomBytes(bytes)]));
  const starters = [ourFiles(contents), caddyFiles(contents)].map((starter) => subjects.share(starter));
  return SIZES.map(({ id, title, path }) => ({
    id,
    subjects,
    async run() {
      const { runs, figures, skipped } = await compare(starters, { load: { path } });
      const targets = target(runs, 'Caddy', 'perSecond', '≥', 0.8, 'req/s');
      return { id, title, figures, skipped, targets };
    },
  }));
}
