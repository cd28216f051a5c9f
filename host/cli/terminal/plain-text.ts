/**
 * Text from elsewhere must not drive the terminal: control characters would move the cursor, write over what was said
 * before, set the clipboard or the title; marks of direction would show an address the wrong way round. Each is shown
 * as its escape (`\u001b`), which is the same character in a JSON document.
 */
import type { Terminal } from './terminal.ts';

/** C0 but tab and line feed (a CR only before one), DEL, C1, marks of direction, line separators, zero-width signs. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for.
const CONTROLS = /\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export function plainText(text: string): string {
  return text.replace(CONTROLS, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The terminal, with every text made plain. Bytes pass as they are, unless a person's screen takes them. */
export function plainTerminal(terminal: Terminal): Terminal {
  return Object.create(terminal, {
    out: {
      value: (text: string | Uint8Array) => {
        if (typeof text === 'string') terminal.out(plainText(text));
        else terminal.out(terminal.outIsScreen ? plainText(Buffer.from(text).toString('utf8')) : text);
      },
    },
    err: { value: (line: string) => terminal.err(plainText(line)) },
    confirm: { value: (question: string) => terminal.confirm(plainText(question).replaceAll('\n', ' ')) },
  }) as Terminal;
}
