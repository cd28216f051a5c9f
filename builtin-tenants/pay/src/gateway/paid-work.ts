/** The paid forward, whoever paid: it is made when money is held, and the money moves only if it is answered 2xx. */
import type { Price } from '../catalog.ts';
import { Problem } from '../problem.ts';
import { type Call, type GatewayParts, toCaller } from './call.ts';
import { type CallClaim, type KeptAnswer, MAX_KEPT_BYTES } from './calls.ts';
import { answeredHeaders, callOrigin } from './origin.ts';
import { CaptureFailed } from './payments.ts';

/** What the host, or whatever is before an origin, answers for one that broke off or is being started. */
const BROKEN_OFF = [502, 503];

/** The usage that was paid is not, or not any more, what the origin asks for. Nothing was charged. */
export class AskedAgain extends Problem {
  constructor() {
    super('upstream_failed', 'The origin requested payment again after it was paid. Nothing was charged.');
  }
}

/** The paid forward, and what becomes of the money. */
export async function work(
  parts: GatewayParts,
  call: Call,
  claim: CallClaim,
  paid: { account: string; usage: Price['usage'] },
  money: { capture(answer: KeptAnswer): Promise<Headers>; release(): Promise<void> },
): Promise<Response> {
  const { calls } = parts;
  const { requestId } = claim;
  let answer: Response | undefined;
  try {
    const forward = { ...call, account: paid.account, requestId, usage: JSON.stringify(paid.usage) };
    answer = await callOrigin(forward, parts).catch(brokenOff);
    // The origin may have done the work before it broke off: by the call's id it knows it again.
    if (!answer || BROKEN_OFF.includes(answer.status)) {
      await answer?.body?.cancel();
      answer = undefined;
      answer = await callOrigin(forward, parts);
    }
    const small = answer.ok ? await readSmall(answer) : undefined;
    if (!answer.ok) {
      await money.release();
      await (BROKEN_OFF.includes(answer.status) ? calls.unanswered(claim) : calls.forget(claim));
      if (answer.status === 402) throw new AskedAgain();
      return toCaller(answer, requestId);
    }
    const headers = answeredHeaders(answer.headers);
    headers.set('x-request-id', requestId);
    const receipt = await money.capture({ status: answer.status, headers: [...headers], body: small ?? null });
    for (const [name, value] of receipt) headers.set(name, value);
    return new Response(small === undefined || answer.status === 204 ? answer.body : small, {
      status: answer.status,
      headers,
    });
  } catch (error) {
    await answer?.body?.cancel().catch(() => {});
    if (error instanceof CaptureFailed) {
      if (error.final) await calls.forget(claim);
      throw new Problem('payment_invalid', 'The payment could not be taken, so the answer is withheld; try again.');
    }
    if (!answer || error instanceof Problem) {
      await money.release();
      await (answer ? calls.forget(claim) : calls.unanswered(claim));
    }
    throw error;
  }
}

/** Claims the Idempotency-Key too; where its answer is kept, the credential's own key is free again. */
export async function join(
  parts: GatewayParts,
  claim: CallClaim,
  key: string,
  hash: string,
): Promise<{ kept?: Response; abandonedHold?: string }> {
  const { calls } = parts;
  try {
    const joined = await calls.join(claim, key, hash);
    if (joined.kept) await calls.forget(claim);
    return joined;
  } catch (error) {
    await calls.forget(claim);
    throw error;
  }
}

/** @throws what is not a broken connection */
function brokenOff(error: unknown): undefined {
  if (!(error instanceof Problem) || error.code !== 'upstream_failed') throw error;
}

/** The whole body where it is known to be small; undefined where it is to be streamed. */
async function readSmall(answer: Response): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const length = answer.headers.get('content-length');
  if (answer.body === null) return new Uint8Array();
  if (length === null || Number(length) > MAX_KEPT_BYTES) return undefined;
  try {
    return new Uint8Array(await answer.arrayBuffer());
  } catch {
    throw new Problem('upstream_failed', 'The origin closed the connection during its response. Nothing was charged.');
  }
}
