/**
 * The boundary for what workerd prints: the handler's console output and workerd's own messages, as JSON lines
 * (`logging: structured`). The text is a tenant's doing: it is parsed here, bounded, and never trusted.
 */
import type { ConsoleLevel } from './log-entry.ts';

export type Output =
  | { kind: 'console'; level: ConsoleLevel; text: string }
  | { kind: 'exception'; text: string; stack: string }
  /** The JavaScript heap reached its limit; the process ends. */
  | { kind: 'heap-limit' }
  /** A connection came in that there was no descriptor for; the process ends. */
  | { kind: 'files-limit' }
  /** workerd itself: why it cannot start, or ends. */
  | { kind: 'runtime'; level: 'info' | 'warning' | 'error' | 'fatal'; text: string };

const LEVELS: Record<string, ConsoleLevel> = { debug: 'debug', log: 'log', info: 'info', warn: 'warn', error: 'error' };
/** V8's last words, as workerd passes them on. */
const HEAP_LIMIT = /^V8 fatal error;.*(?:Reached heap limit|heap out of memory)/;
/** What workerd says when it cannot accept a connection, which it does not survive. */
const FILES_LIMIT = /^\*\*\* Uncaught exception \*\*\*\n.*Too many open files/;
/** With `--verbose`, workerd 1.20261117.1 reports an exception that left a handler in this form. */
const UNCAUGHT = /^uncaught exception; source = [^;]*; stack = ([\s\S]*)$/;

/** @returns undefined for lines that say nothing to anyone */
export function parseOutputLine(line: string): Output | undefined {
  const record = parseObject(line);
  if (!record) return line.trim() === '' ? undefined : { kind: 'runtime', level: 'info', text: line };
  const message = typeof record.message === 'string' ? record.message : '';
  const level = typeof record.level === 'string' ? record.level : 'log';
  // Only workerd's own lines name their source; console output never does.
  if (typeof record.source !== 'string') return { kind: 'console', level: LEVELS[level] ?? 'log', text: message };
  const stack = UNCAUGHT.exec(message)?.[1];
  if (stack !== undefined) return { kind: 'exception', text: stack.split('\n')[0] ?? '', stack };
  if (HEAP_LIMIT.test(message)) return { kind: 'heap-limit' };
  if (FILES_LIMIT.test(message)) return { kind: 'files-limit' };
  const severity = level === 'error' || level === 'fatal' || level === 'warning' ? level : 'info';
  return { kind: 'runtime', level: severity, text: message };
}

function parseObject(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
