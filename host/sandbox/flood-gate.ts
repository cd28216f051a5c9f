/**
 * Reads a process' output line by line without letting a flood of it cost the host: beyond a rate, lines are counted
 * and dropped unparsed; beyond a higher one, reading pauses, and the writer waits on its own pipe. Lines that take long
 * count by their time: a stream gets a tenth of it. The last line is never dropped: it says why the process ended.
 */
import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

export interface FloodGateOptions {
  onLine(line: string): void;
  /** Called after a flood, at most once a window. */
  onDropped(lines: number, bytes: number): void;
  /** Bytes parsed per window. */
  parseBytes?: number;
  /** Bytes read per window; reading pauses beyond. */
  readBytes?: number;
  windowMs?: number;
  /** CPU time for lines per window; after more than that, lines are dropped until that was the stream's share again. */
  lineMs?: number;
}

/** Longest line that is kept, bytes: workerd escapes a text of MAX_TEXT to less than this. */
const MAX_LINE = 64 * 1024;
const NEWLINE = 10;

export function readLines(
  stream: Readable,
  {
    onLine,
    onDropped,
    parseBytes = 128 * 1024,
    readBytes = 16 * 1024 * 1024,
    windowMs = 1_000,
    lineMs = windowMs / 10,
  }: FloodGateOptions,
): void {
  let rest = '';
  let decoder = new StringDecoder('utf8');
  let parsed = 0;
  let read = 0;
  let spentMs = 0;
  let closedUntil = 0;
  let droppedLines = 0;
  let droppedBytes = 0;
  let lastDropped: Buffer | undefined;
  let timer: NodeJS.Timeout | undefined;

  const nextWindow = (): void => {
    timer = undefined;
    const lines = droppedLines;
    const bytes = droppedBytes;
    parsed = 0;
    read = 0;
    spentMs = 0;
    droppedLines = 0;
    droppedBytes = 0;
    if (bytes > 0) onDropped(lines, bytes);
    stream.resume();
  };

  stream.on('data', (chunk: Buffer) => {
    timer ??= setTimeout(nextWindow, windowMs).unref();
    read += chunk.length;
    if (read > readBytes) stream.pause();
    if (parsed + chunk.length > parseBytes || performance.now() < closedUntil) {
      droppedBytes += chunk.length;
      for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) droppedLines++;
      lastDropped = chunk;
      // The line that the gate came down on is lost, too.
      rest = '';
      decoder = new StringDecoder('utf8');
      return;
    }
    parsed += chunk.length;
    lastDropped = undefined;
    const lines = (rest + decoder.write(chunk)).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MAX_LINE) {
      droppedLines++;
      droppedBytes += rest.length;
      rest = '';
    }
    for (const line of lines) {
      if (performance.now() < closedUntil) {
        droppedLines++;
        droppedBytes += line.length + 1;
        lastDropped = chunk;
        continue;
      }
      const before = process.threadCpuUsage();
      onLine(line);
      const { user, system } = process.threadCpuUsage(before);
      spentMs += (user + system) / 1_000;
      if (spentMs > lineMs) closedUntil = performance.now() + (spentMs * (windowMs - lineMs)) / lineMs;
    }
  });
  stream.on('end', () => {
    const last = lastDropped ? lastDropped.toString('utf8').trimEnd().split('\n').at(-1) : rest;
    if (last) onLine(last);
    if (timer) {
      clearTimeout(timer);
      nextWindow();
    }
  });
  stream.on('error', () => undefined);
}
