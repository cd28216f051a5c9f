/** How an error stands in the log. */
import { pino } from 'pino';

/**
 * An error of an RPC call (viem) holds the whole request, and the URL, which may have a key in it: only what went wrong is
 * kept of it, and of an error that it caused. Others are kept whole.
 */
export function errorForLog(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const { shortMessage, details } = cause as { shortMessage?: unknown; details?: unknown };
    if (typeof shortMessage !== 'string') continue;
    const said = [cause === error ? undefined : error.message, shortMessage, details];
    const message = [...new Set(said.filter((text) => typeof text === 'string' && text !== ''))].join(' ');
    return { type: error.name, message };
  }
  return pino.stdSerializers.err(error);
}
