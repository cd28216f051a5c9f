/** Mandates for the operator: what the host itself sells is paid by them, without the payer being there. */
import { Problem } from '../shared/problem.ts';
import type { Address, Mandates, OperatorMandates } from './types.ts';

export function operatorMandates(mandates: Mandates, recipient: Address, realm: () => string): OperatorMandates {
  const scopeOf = (scope: string) => `mandate:${scope}`;
  return {
    ask({ scope, ...asked }) {
      const challenge = mandates.challenge({ ...asked, recipient, scope: scopeOf(scope), meta: {} }, realm());
      const text =
        'The wallet signs this mandate once, by an MPP client that has subscriptions. Send the request again with it.';
      return new Problem('payment_required', text, { headers: { 'www-authenticate': challenge } }).toResponse();
    },
    accept: async (headers, scope) =>
      (await mandates.accept(headers, { scope: scopeOf(scope), realm: realm() })).mandate,
    pay: (mandate, amount, answer) => mandates.pay(mandate, amount, answer),
  };
}
