/** Signing up, signing in, and confirming what a program asked for: the pages with forms. */
import { html } from '../../../kit/look/layout.ts';
import type { PendingCode } from '../accounts/device-flow.ts';
import { csrfField, type Frame, page } from './layout.ts';

export function signPage(kind: 'in' | 'up', frame: Frame, next: string, problem?: string, email = '') {
  const up = kind === 'up';
  const other = up
    ? html`Have an account? <a href="/sign-in?next=${encodeURIComponent(next)}">Sign in</a>`
    : html`New here? <a href="/sign-up?next=${encodeURIComponent(next)}">Sign up</a>`;
  const body = html`<section class="card">
  ${problem === undefined ? '' : html`<p class="note bad" role="alert">${problem}</p>`}
  <form method="post" action="/sign-${kind}">
    ${csrfField(frame.visitor)}
    <input type="hidden" name="next" value="${next}">
    <label class="field">E-mail address
      <input type="email" name="email" value="${email}" autocomplete="username" required autofocus></label>
    <label class="field">Password${up ? ', at least 10 characters' : ''}
      <input type="password" name="password" minlength="10" maxlength="200" required
        autocomplete="${up ? 'new-password' : 'current-password'}"></label>
    <div class="row"><button>${up ? 'Sign up' : 'Sign in'}</button><span class="soft">${other}</span></div>
    ${up ? '' : html`<p class="soft"><a href="/reset">Forgot your password?</a></p>`}
  </form>
</section>`;
  return page(up ? 'Sign up' : 'Sign in', frame, body, { narrow: true });
}

/** @param sends whether the host sends e-mails */
export function askResetPage(frame: Frame, sends: boolean) {
  const form = html`<p>You get a link to the address of your account, by which you choose a new password.</p>
  <form method="post" action="/reset">
    ${csrfField(frame.visitor)}
    <label class="field">E-mail address
      <input type="email" name="email" autocomplete="username" required autofocus></label>
    <button>Send the link</button>
  </form>`;
  const body = html`<section class="card">
  ${sends ? form : html`<p>This host sends no e-mails. Ask its operator for a link.</p>`}
  <p class="soft"><a href="/sign-in">Sign in</a></p>
</section>`;
  return page('Forgot your password?', frame, body, { narrow: true });
}

export function newPasswordPage(frame: Frame, token: string, problem?: string) {
  const body = html`<section class="card">
  ${problem === undefined ? '' : html`<p class="note bad" role="alert">${problem}</p>`}
  <form method="post" action="/reset/new">
    ${csrfField(frame.visitor)}
    <input type="hidden" name="token" value="${token}">
    <label class="field">New password, at least 10 characters
      <input type="password" name="password" minlength="10" maxlength="200" required autocomplete="new-password"
        autofocus></label>
    <button>Change the password</button>
  </form>
</section>`;
  return page('A new password', frame, body, { narrow: true });
}

export function codePage(frame: Frame, problem?: string) {
  const body = html`<section class="card">
  <p>A program on another device showed you a code. Enter it here.</p>
  ${problem === undefined ? '' : html`<p class="note bad" role="alert">${problem}</p>`}
  <form method="get" action="/device">
    <label class="field">Code
      <input class="code" name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false"
        placeholder="BCDF-GHJK" required autofocus></label>
    <button>Continue</button>
  </form>
</section>`;
  return page('Connect a program', frame, body, { narrow: true, at: 'Connect a program' });
}

export function confirmPage(frame: Frame, code: PendingCode) {
  const claim = code.purpose === 'claim';
  const what = claim
    ? html`<p>An agent asks you to become the owner of its account <code>${code.claimedAccount}</code>. You will see
      its credit and its statement, and can revoke its credentials.</p>`
    : html`<p><strong>${code.client}</strong> asks to use your account. It will be able to spend your credit and to
      buy more with its own wallet.</p>`;
  const body = html`<section class="card">
  ${what}
  <p class="soft">Allow it only if the program shows this very code, and you started it yourself:</p>
  <p class="usercode">${code.userCode}</p>
  <form method="post" action="/device" class="row">
    ${csrfField(frame.visitor)}
    <input type="hidden" name="user_code" value="${code.userCode}">
    <button name="decision" value="allow">${claim ? 'Take it over' : 'Allow'}</button>
    <button name="decision" value="deny" class="quiet">Deny</button>
  </form>
</section>`;
  return page(claim ? 'Take over an account' : 'Allow a program?', frame, body, { narrow: true });
}

export function decidedPage(frame: Frame, allowed: boolean) {
  const body = html`<section class="card">
  <p class="${allowed ? 'good' : 'bad'}">${allowed ? 'Done. You can go back to the program.' : 'Denied. Nothing was shared.'}</p>
  <p><a href="/dashboard">Go to your dashboard</a></p>
</section>`;
  return page(allowed ? 'Allowed' : 'Denied', frame, body, { narrow: true });
}

export function messagePage(title: string, frame: Frame, text: string, next = { href: '/', label: 'Back' }) {
  const body = html`<section class="card"><p>${text}</p><p><a href="${next.href}">${next.label}</a></p></section>`;
  return page(title, frame, body, { narrow: true });
}
