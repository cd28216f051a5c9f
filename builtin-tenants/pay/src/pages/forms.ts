/** Signing up, signing in, and confirming what a program asked for: the pages with forms. */
import { html } from 'hono/html';
import type { PendingCode } from '../accounts/device-flow.ts';
import { csrfField, page } from './layout.ts';
import type { Visitor } from './visitor.ts';

export function signPage(kind: 'in' | 'up', visitor: Visitor, next: string, problem?: string, email = '') {
  const up = kind === 'up';
  const other = up
    ? html`Have an account? <a href="/sign-in?next=${encodeURIComponent(next)}">Sign in</a>`
    : html`New here? <a href="/sign-up?next=${encodeURIComponent(next)}">Sign up</a>`;
  const body = html`<section>
  ${problem === undefined ? '' : html`<p class="bad" role="alert">${problem}</p>`}
  <form method="post" action="/sign-${kind}">
    ${csrfField(visitor)}
    <input type="hidden" name="next" value="${next}">
    <label>E-mail address
      <input type="email" name="email" value="${email}" autocomplete="username" required autofocus></label>
    <label>Password${up ? ', at least 10 characters' : ''}
      <input type="password" name="password" minlength="10" maxlength="200" required
        autocomplete="${up ? 'new-password' : 'current-password'}"></label>
    <div class="row"><button>${up ? 'Sign up' : 'Sign in'}</button><span class="soft">${other}</span></div>
  </form>
</section>`;
  return page(up ? 'Sign up' : 'Sign in', visitor, body, true);
}

export function codePage(visitor: Visitor, problem?: string) {
  const body = html`<section>
  <p>A program on another device showed you a code. Enter it here.</p>
  ${problem === undefined ? '' : html`<p class="bad" role="alert">${problem}</p>`}
  <form method="get" action="/device">
    <label>Code
      <input class="code" name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false"
        placeholder="BCDF-GHJK" required autofocus></label>
    <button>Continue</button>
  </form>
</section>`;
  return page('Connect a program', visitor, body, true);
}

export function confirmPage(visitor: Visitor, code: PendingCode) {
  const claim = code.purpose === 'claim';
  const what = claim
    ? html`<p>An agent asks you to become the owner of its account <code>${code.claimedAccount}</code>. You will see
      its credit and its statement, and can revoke its credentials.</p>`
    : html`<p><strong>${code.client}</strong> asks to use your account. It will be able to spend your credit and to
      buy more with its own wallet.</p>`;
  const body = html`<section>
  ${what}
  <p class="soft">Allow it only if the program shows this very code, and you started it yourself:</p>
  <p class="usercode">${code.userCode}</p>
  <form method="post" action="/device" class="row">
    ${csrfField(visitor)}
    <input type="hidden" name="user_code" value="${code.userCode}">
    <button name="decision" value="allow">${claim ? 'Take it over' : 'Allow'}</button>
    <button name="decision" value="deny" class="quiet">Deny</button>
  </form>
</section>`;
  return page(claim ? 'Take over an account' : 'Allow a program?', visitor, body, true);
}

export function decidedPage(visitor: Visitor, allowed: boolean) {
  const body = html`<section>
  <p class="${allowed ? 'good' : 'bad'}">${allowed ? 'Done. You can go back to the program.' : 'Denied. Nothing was shared.'}</p>
  <p><a href="/dashboard">Go to your dashboard</a></p>
</section>`;
  return page(allowed ? 'Allowed' : 'Denied', visitor, body, true);
}

export function messagePage(title: string, visitor: Visitor, text: string) {
  return page(title, visitor, html`<section><p>${text}</p><p><a href="/">Back</a></p></section>`, true);
}
