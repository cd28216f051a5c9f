/**
 * Who looks at a page: the session in a cookie, and proof that a form was filled in on our own page. Cookies are for
 * this host name alone, out of reach of scripts.
 */
import type { Context } from 'hono';
import { deleteCookie, getCookie, setCookie } from 'hono/cookie';
import type { Human, Humans } from '../accounts/humans.ts';
import { mac, newSecret, sameText } from '../accounts/tokens.ts';
import { Problem } from '../problem.ts';

export interface Visitor {
  human: Human | undefined;
  /** Goes into every form as `csrf`. */
  csrf: string;
}

export class Visitors {
  readonly #humans: Humans;
  readonly #secret: string;
  readonly #origin: string;
  readonly #secure: boolean;

  /** @param pagesUrl origin of the pages */
  constructor(humans: Humans, secret: string, pagesUrl: string) {
    this.#humans = humans;
    this.#secret = secret;
    this.#origin = new URL(pagesUrl).origin;
    this.#secure = pagesUrl.startsWith('https:');
  }

  async of(c: Context): Promise<Visitor> {
    const session = getCookie(c, this.#name('session'));
    let form = getCookie(c, this.#name('form'));
    if (form === undefined) {
      form = newSecret('tpf');
      setCookie(c, this.#name('form'), form, { ...this.#attributes(), maxAge: 30 * 86_400 });
    }
    const human = session === undefined ? undefined : await this.#humans.bySession(session);
    return { human, csrf: await this.#token(form, session) };
  }

  /** The fields of a posted form. @throws Problem forbidden when it was not sent from our own page */
  async form(c: Context): Promise<Record<string, string>> {
    const origin = c.req.header('origin');
    const site = c.req.header('sec-fetch-site');
    const fields = await c.req.parseBody();
    const text = Object.fromEntries(
      Object.entries(fields).map(([name, value]) => [name, typeof value === 'string' ? value : '']),
    );
    const form = getCookie(c, this.#name('form')) ?? '';
    const expected = await this.#token(form, getCookie(c, this.#name('session')));
    const ours = (origin === undefined || origin === this.#origin) && (site === undefined || site === 'same-origin');
    if (!ours || form === '' || !sameText(text.csrf ?? '', expected)) {
      throw new Problem('forbidden', 'This form is too old or came from another page; go back, reload and try again.');
    }
    return text;
  }

  async signIn(c: Context, human: Human): Promise<void> {
    const { secret, maxAgeSeconds } = await this.#humans.startSession(human.id);
    setCookie(c, this.#name('session'), secret, { ...this.#attributes(), maxAge: maxAgeSeconds });
  }

  async signOut(c: Context): Promise<void> {
    const session = getCookie(c, this.#name('session'));
    if (session !== undefined) await this.#humans.endSession(session);
    deleteCookie(c, this.#name('session'), this.#attributes());
  }

  #token(form: string, session: string | undefined): Promise<string> {
    return mac(this.#secret, 'form', `${form}\n${session ?? ''}`);
  }

  /** `__Host-` makes browsers refuse the cookie from any other host; it needs https. */
  #name(what: 'session' | 'form'): string {
    return `${this.#secure ? '__Host-' : ''}pay_${what}`;
  }

  #attributes() {
    return { path: '/', httpOnly: true, secure: this.#secure, sameSite: 'Lax' } as const;
  }
}
