/**
 * What payments that are under way use up of what they share, at all nodes: money, limits, nonces. Only PostgreSQL has the
 * table, and a trigger there that ends a payment's part once its money has moved or never will.
 */
import type { Registry } from '../index.ts';
import type { BuiltStatement } from '../statements.ts';

/** What a payment uses up of a share. */
export interface Part {
  of: string;
  amount: bigint;
}

/** What another payment uses up. */
export interface OtherPart extends Part {
  payment: string;
}

/** What was there of the shares of a payment as it began. */
export interface Found {
  underWay: OtherPart[];
  /** By share, how long before the chain was done with the last one, ms: what it was asked earlier may be out of date. */
  endedMs: Map<string, number>;
}

/** Notes what a payment uses up, and finds what others do: one statement, so that of two at once the second finds the first. */
export function takes(payment: string, parts: readonly Part[]): BuiltStatement {
  // A transaction may name a share twice.
  const amounts = new Map<string, bigint>();
  for (const { of, amount } of parts) amounts.set(of, (amounts.get(of) ?? 0n) + amount);
  const rows = [...amounts].map(([of, amount]) => [of, payment, Number(amount)]);
  return {
    sql: `WITH mine AS (
        INSERT INTO payment_shares (share, payment, amount) VALUES ${rows.map(() => '(?, ?, ?)').join(', ')})
      SELECT share, payment, amount, floor(extract(epoch FROM clock_timestamp()) * 1000) - ended_at AS ended_ms
        FROM payment_shares WHERE share IN (${rows.map(() => '?').join(', ')})`,
    args: [...rows.flat(), ...amounts.keys()],
  };
}

type Rows = Awaited<ReturnType<Registry['client']['execute']>>['rows'];

export function foundBeside(rows: Rows): Found {
  const ended = rows.filter(({ ended_ms }) => ended_ms !== null);
  return {
    underWay: rows.filter(({ ended_ms }) => ended_ms === null).map(otherPart),
    endedMs: new Map(ended.map(({ share, ended_ms }) => [String(share), Number(ended_ms)])),
  };
}

function otherPart({ share, payment, amount }: Rows[number]): OtherPart {
  return { of: String(share), payment: String(payment), amount: BigInt(Number(amount)) };
}

/** Those of them that are under way still. `settles`: their money is moving just now. */
export async function stillUnderWay(
  client: Registry['client'],
  parts: readonly OtherPart[],
): Promise<(OtherPart & { settles: boolean })[]> {
  const [first] = parts;
  if (!first) return [];
  const { rows } = await client.execute({
    sql: `SELECT share, payment, amount, state = 'settling' AND pending_since IS NULL AS settles
      FROM payment_shares JOIN payments ON payments.id = payment
      WHERE share = ? AND payment IN (${parts.map(() => '?').join(', ')})`,
    args: [first.of, ...parts.map(({ payment }) => payment)],
  });
  return rows.map((row) => ({ ...otherPart(row), settles: Number(row.settles) === 1 }));
}
