/** Whose page it is, and which of their accounts it shows. */
import type { Context } from 'hono';
import type { Account } from '../accounts/accounts.ts';
import type { Human } from '../accounts/humans.ts';
import { Problem } from '../problem.ts';
import type { Visitors } from './visitor.ts';

/** @throws Problem unauthorized */
export async function signedIn(visitors: Visitors, c: Context): Promise<{ human: Human }> {
  const { human } = await visitors.of(c);
  if (!human) throw new Problem('unauthorized', 'Sign in first.');
  return { human };
}

/** The account asked for, if it is one of theirs; the main one where none was. @throws Problem not_found */
export function pick(all: Account[], id: string | undefined): Account {
  const account = id === undefined || id === '' ? all[0] : all.find((one) => one.id === id);
  if (!account) throw new Problem('not_found', 'You have no such account; choose one of those on your dashboard.');
  return account;
}
