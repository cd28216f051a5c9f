/** What a wallet's deployments sell, looked at as x402's indexers do: each address is called without a payment. */
import { z } from 'zod';
import { readText } from './answer.ts';
import type { HostClient } from './host-client.ts';
import type { Metadata } from './metadata-view.ts';
import type { Session } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

const MOST_RESOURCES = 500;
const LARGEST_402 = 64 * 1024;
/** Of a route that takes every method, the first one that asks for money is shown. */
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

const listSchema = z.looseObject({ resources: z.array(z.string()) });
const requiredSchema = z.looseObject({
  accepts: z.array(z.looseObject({ scheme: z.string(), network: z.string() })).min(1),
  extensions: z
    .looseObject({ bazaar: z.looseObject({ info: z.unknown(), schema: z.record(z.string(), z.unknown()) }).optional() })
    .optional(),
});
const documentSchema = z.looseObject({ price: z.looseObject({ amount: z.string(), mode: z.string() }).optional() });

interface ForSale {
  url: string;
  method?: string;
  /** USD. */
  price?: string;
  mode?: string;
  /** Schemes and networks of x402. */
  accepts?: string[];
  /** Why an indexer would leave it out. */
  problem?: string;
}

/** @throws Failure `refused` where an indexer would leave something out */
export async function showForSale(session: Session, host: HostClient, deployments: Metadata[]): Promise<void> {
  const found: ForSale[] = [];
  for (const { slug, url: address, paidRoutes } of deployments) {
    if (paidRoutes.length === 0) continue;
    const listed = listSchema.safeParse(await host.get(`/${slug}/.well-known/x402`));
    if (!listed.success) {
      found.push({ url: address, problem: '/.well-known/x402 is not a list of resources' });
      continue;
    }
    for (const url of listed.data.resources.slice(0, MOST_RESOURCES)) found.push(await lookAt(host, url, address));
  }
  const rows = found.map(({ url, method = '', price, mode, problem, accepts = [] }) => [
    method,
    url,
    price === undefined ? '' : `${mode === 'metered' ? 'up to ' : ''}${price} USD`,
    problem ?? accepts.join(', '),
  ]);
  session.printer.result({ forSale: found }, table(rows) || 'Nothing is for sale: give a deployment "paidRoutes".');
  const refused = found.filter(({ problem }) => problem !== undefined).length;
  if (refused > 0) throw new Failure('refused', `Indexers would leave out ${refused} of ${found.length}; see above.`);
}

/** @param address of the deployment, as the host names itself; it may be called by another name here */
async function lookAt(host: HostClient, url: string, address: string): Promise<ForSale> {
  if (!url.startsWith(address)) return { url, problem: `does not begin with ${address}` };
  const { pathname, search } = new URL(url);
  for (const method of METHODS) {
    const answer = await host.probe(method, pathname + search);
    if (answer.status === 402) return { url, method, ...(await described(method, answer)) };
    await answer.body?.cancel();
  }
  return { url, problem: 'does not answer 402 to a call without a payment' };
}

async function described(method: string, answer: Response): Promise<Omit<ForSale, 'url'>> {
  const document = documentSchema.safeParse(asJson(await readText(answer, LARGEST_402)));
  const price = document.data?.price && { price: document.data.price.amount, mode: document.data.price.mode };
  const header = answer.headers.get('payment-required');
  if (header === null) return { ...price, problem: 'offers no x402 payment' };
  const required = requiredSchema.safeParse(asJson(Buffer.from(header, 'base64').toString('utf8')));
  if (!required.success) return { ...price, problem: 'its PAYMENT-REQUIRED cannot be read' };
  const accepts = required.data.accepts.map(({ scheme, network }) => `${scheme} on ${network}`);
  const { bazaar } = required.data.extensions ?? {};
  if (!bazaar) return { ...price, accepts, problem: `says nothing of how ${method} is called` };
  const problem = misfit(bazaar);
  return { ...price, accepts, ...(problem === undefined ? {} : { problem }) };
}

/** Indexers check the example against the schemas, and drop what does not fit. */
function misfit({ info, schema }: { info?: unknown; schema: Record<string, unknown> }): string | undefined {
  try {
    const checked = z.fromJSONSchema(schema as Parameters<typeof z.fromJSONSchema>[0]).safeParse(info);
    const [issue] = checked.error?.issues ?? [];
    return issue && `its example does not fit its schema: ${issue.path.join('.')} ${issue.message}`;
  } catch (error) {
    return `its schema cannot be used: ${(error as Error).message}`;
  }
}

function asJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
