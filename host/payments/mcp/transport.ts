/**
 * Payments of tool calls (MCP): a credential comes in the call's `_meta` and is read as if it had come in a header, and
 * a 402 becomes the result that clients of either protocol understand. What is paid, and how, is decided as over HTTP.
 */
import { type MessageId, type Meta, resultMessage, type ToolResult } from '../../shared/mcp-message.ts';
import { Problem, type ProblemDocument } from '../../shared/problem.ts';
import { METHODS } from '../methods/index.ts';

/** Of a client that wants to hear of progress; a new one for each call. */
const PROGRESS = 'progressToken';

/**
 * @returns header fields of the credentials, and what else `_meta` holds
 * @throws Problem `payment_invalid`
 */
export function credentialsOf(meta: Meta): { headers: Record<string, string>; rest: Meta } {
  const { [PROGRESS]: _, ...rest } = meta;
  const headers: Record<string, string> = {};
  for (const { tools } of METHODS) {
    const sent = rest[tools.credential];
    if (sent === undefined) continue;
    delete rest[tools.credential];
    try {
      Object.assign(headers, tools.header(sent));
    } catch (error) {
      throw new Problem('payment_invalid', `_meta["${tools.credential}"] is no credential.`, { cause: error });
    }
  }
  return { headers, rest };
}

/**
 * What was answered over HTTP, as a message.
 * @param meta of the call
 * @param result makes the result of a tool of an answer below 400
 */
export async function toolAnswer(
  id: MessageId,
  meta: Meta,
  answer: Response,
  result: (text: string) => ToolResult,
): Promise<string> {
  const text = await answer.text();
  if (answer.status === 402) return resultMessage(id, paymentRequired(answer.headers, text));
  if (answer.status >= 400) return resultMessage(id, refusal(answer.status, text));
  const made = result(text);
  const receipts = METHODS.map(({ tools }) =>
    meta[tools.credential] === undefined ? {} : tools.receipt(answer.headers, meta[tools.credential]),
  );
  const all: Meta = Object.assign({}, made._meta, ...receipts);
  return resultMessage(id, Object.keys(all).length > 0 ? { ...made, _meta: all } : made);
}

/**
 * x402 has the offers in `structuredContent` and, as text, in `content`
 * (https://github.com/x402-foundation/x402/blob/main/specs/transports-v2/mcp.md); MPP has its challenges in `_meta`.
 */
function paymentRequired(headers: Headers, text: string): ToolResult {
  const { problem, detail = 'This tool costs money.' } = problemOf(text);
  const offered = METHODS.map(({ tools }) => tools.required(headers));
  const structured = offered.find(({ structuredContent }) => structuredContent)?.structuredContent;
  const meta: Meta = Object.assign({}, ...offered.map(({ challenge }) => challenge && { ...challenge }));
  for (const value of Object.values(meta)) Object.assign(value as object, { httpStatus: 402, problem });
  return {
    isError: true,
    content: [{ type: 'text', text: structured ? JSON.stringify(structured) : detail }],
    ...(structured ? { structuredContent: structured } : {}),
    _meta: meta,
  };
}

/** As the result of the tool, and not as an error of the protocol: who called is to read it, and may do better. */
function refusal(status: number, text: string): ToolResult {
  const { problem, detail = `The call was answered with ${status}.` } = problemOf(text);
  return {
    isError: true,
    content: [{ type: 'text', text: detail }],
    ...(problem ? { structuredContent: problem } : {}),
  };
}

function problemOf(text: string): { problem?: ProblemDocument; detail?: string } {
  try {
    const problem = JSON.parse(text) as ProblemDocument;
    return typeof problem.detail === 'string' ? { problem, detail: problem.detail } : {};
  } catch {
    return {};
  }
}
