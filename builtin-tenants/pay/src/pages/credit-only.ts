/** The 402 of what is paid from credit alone, as a page: there is nothing for a wallet to sign, so it says what to do. */
import { html, type Place, page } from '../../../kit/look/layout.ts';
import { aloneHeaders, lookText } from '../../../kit/look/tenant.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Price } from '../catalog.ts';
import type { Call } from '../gateway/call.ts';

export interface CreditOnlyFacts {
  call: Pick<Call, 'method' | 'resource'>;
  price: Price;
  /** Origin of the pages. */
  pagesUrl: string;
  places: readonly Place[];
  requestId: string;
}

/** @param headers of the answer, whose body and type give way to the page */
export async function creditOnlyPage(facts: CreditOnlyFacts, headers: Headers): Promise<Response> {
  const { call, price, pagesUrl, places, requestId } = facts;
  const { method, resource } = call;
  const what = price.description;
  const cost = formatUsd(price.amount);
  const flags = method === 'GET' ? '' : ` -X ${method}`;
  const quoted = `'${resource.replaceAll("'", "'\\''")}'`;
  const main = html`<p class="row"><span class="badge warn">402</span><code>payment_required</code></p>
<h1>${what}</h1>
<p class="price"><strong>${cost} USD</strong></p>
<p class="lead">This is paid from credit of an account, never by a single payment.</p>
<dl class="facts"><dt>For</dt><dd><code>${method} ${resource}</code></dd>
${price.plan ? html`<dt>Credit</dt><dd>from ${formatUsd(price.plan.minimum)} USD on</dd>` : ''}</dl>
<p class="row"><a class="button" href="${pagesUrl}/dashboard">Open your account</a><a class="button quiet" href="${pagesUrl}/sign-up">Get an account</a></p>
<h2>From a terminal</h2>
<pre>turnpike account register
turnpike account topup ${formatUsd(price.plan?.minimum ?? price.amount)}
turnpike pay ${quoted}${flags} --credit --max-pay ${cost}</pre>
<p class="soft small">Request <code>${requestId}</code></p>`;
  for (const [name, value] of Object.entries(await aloneHeaders())) headers.set(name, value);
  const text = String(
    await page({ title: what, site: 'Pay', style: lookText(), places, at: 'Pay', width: 'read', main }),
  );
  return new Response(text, { status: 402, headers });
}
