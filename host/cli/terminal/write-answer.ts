/** An answer of bytes: to a file, or to stdout as it is. */
import { createWriteStream } from 'node:fs';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Session } from '../session.ts';

export async function writeAnswer(
  { terminal, printer }: Session,
  answer: Response,
  file: string | undefined,
): Promise<void> {
  if (file === undefined) {
    const bytes = Buffer.from(await answer.arrayBuffer());
    if (printer.json) printer.result({ base64: bytes.toString('base64') }, '');
    else terminal.out(bytes.toString('utf8'));
    return;
  }
  const path = resolve(terminal.cwd, file);
  if (answer.body) await pipeline(Readable.fromWeb(answer.body as never), createWriteStream(path));
  printer.result({ file: path }, `written to ${path}`);
}
