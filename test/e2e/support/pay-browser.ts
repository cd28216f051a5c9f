/** A person's browser at the pages of the pay platform. */
import type { Page, PayRig } from './pay-rig.ts';

/** A browser: keeps cookies, fills in forms. */
export class Browser {
  readonly #rig: PayRig;
  readonly cookies = new Map<string, string>();
  last: Page = { status: 0, headers: {}, text: '' };

  constructor(rig: PayRig) {
    this.#rig = rig;
  }

  async get(target: string): Promise<Page> {
    return this.#go(target, 'GET');
  }

  /** Posts the form of the last page with its hidden fields, and follows the redirect. */
  async submit(action: string, fields: Record<string, string>): Promise<Page> {
    const form = new RegExp(`<form[^>]*action="${action}"[^>]*>(.*?)</form>`, 's').exec(this.last.text)?.[1] ?? '';
    const hidden = [...form.matchAll(/<input type="hidden" name="(\w+)" value="([^"]*)"/g)].map(
      ([, name = '', value = '']) => [
        name,
        value.replaceAll('&amp;', '&').replaceAll('&#39;', "'").replaceAll('&quot;', '"'),
      ],
    );
    return this.post(action, { ...Object.fromEntries(hidden), ...fields });
  }

  async post(target: string, fields: Record<string, string>, headers: Record<string, string> = {}): Promise<Page> {
    const origin = { origin: this.#rig.pages, 'sec-fetch-site': 'same-origin' };
    return this.#go(target, 'POST', new URLSearchParams(fields).toString(), { ...origin, ...headers });
  }

  async #go(target: string, method: string, body?: string, headers: Record<string, string> = {}): Promise<Page> {
    const page = await this.#rig.browse(target, {
      method,
      headers: {
        ...headers,
        ...(body === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded' }),
        cookie: [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; '),
      },
      ...(body === undefined ? {} : { body }),
    });
    for (const set of [page.headers['set-cookie'] ?? []].flat()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
      if (/max-age=0/i.test(set)) this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    const { location } = page.headers;
    if (typeof location === 'string' && page.status >= 300 && page.status < 400) return this.#go(location, 'GET');
    this.last = page;
    return page;
  }
}
