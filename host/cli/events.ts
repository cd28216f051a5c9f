/** Server-sent events, as hosts send lines of a log. */
import { Failure } from './terminal/failure.ts';

export interface ServerEvent {
  id: string;
  data: string;
}

const LARGEST_EVENT = 4 * 1024 * 1024;

/** Until the server ends the stream. @throws Failure `unreachable` for an event without an end */
export async function* eventsOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const piece of pieces) {
    rest += decoder.decode(piece, { stream: true });
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const event = parseEvent(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (event) yield event;
    }
    if (rest.length > LARGEST_EVENT) throw new Failure('unreachable', 'The host sent an event without an end.');
  }
}

function parseEvent(block: string): ServerEvent | undefined {
  const fields = block.split('\n').map((line) => /^(\w+): ?(.*)$/s.exec(line));
  const field = (name: string) =>
    fields
      .filter((match) => match?.[1] === name)
      .map((match) => match?.[2] ?? '')
      .join('\n');
  const data = field('data');
  return data === '' ? undefined : { id: field('id'), data };
}
