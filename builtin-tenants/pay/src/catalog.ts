/** Services, meters and plans: rows that the operator changes. Usage becomes a price here. */
import { ask, firstRow, type Question } from './database/questions.ts';
import { type Database, type Env, payUrl, type Statement } from './environment.ts';

/** Largest amount of one movement, micro-USD: a million USD. */
export const MOST = 1_000_000_000_000;
/** What people buy on the pages, and mandates buy. */
export const CREDIT = { service: 'deals-watches', plan: 'default' };

export interface Service {
  slug: string;
  /** Base address of the origin, without a final slash. */
  origin: string;
  name: string;
  creditService: string;
}

export interface UsageLine {
  meterSlug: string;
  quantity: number;
}

export interface Price {
  service: Service;
  usage: UsageLine[];
  /** micro-USD. */
  amount: number;
  /** At least one meter is sold from credit alone. */
  creditOnly: boolean;
  description: string;
  /** The smallest purchase of credit for it, where credit is sold. */
  plan: Plan | undefined;
}

export interface Meter {
  service: string;
  slug: string;
  price: number;
  creditOnly: boolean;
  description: string;
}

export interface Plan {
  service: string;
  id: string;
  minimum: number;
  expiresAfterDays: number | null;
}

type MeterRow = Omit<Meter, 'creditOnly'> & { creditOnly: number };

/** One line of what is sold. */
export interface Sold {
  /** Of the service. */
  name: string;
  description: string;
  /** micro-USD. */
  price: number;
  creditOnly: boolean;
}

/** Lines of a page. */
const MOST_SOLD = 100;

const PLANS = 'SELECT service, id, minimum, expires_after_days AS expiresAfterDays FROM plans WHERE';

/** Largest quantity of one meter in one call. */
const MOST_QUANTITY = 1_000_000;
const MOST_LINES = 20;

export class Catalog {
  readonly #db: Database;
  readonly #appUrl: string;
  readonly #payUrl: string;

  constructor(db: Database, env: Pick<Env, 'APP_URL'>) {
    this.#db = db;
    this.#appUrl = env.APP_URL;
    this.#payUrl = payUrl(env);
  }

  async service(slug: string): Promise<Service | undefined> {
    return ask(this.#db, this.serviceNamed(slug));
  }

  /** The same as a question, to be asked with others. */
  serviceNamed(slug: string): Question<Service | undefined> {
    const { statements, read } = firstRow<Service>(this.#service(slug));
    return { statements, read: (results) => this.#known(read(results)) };
  }

  async meters(service: string): Promise<Meter[]> {
    const { results } = await this.#meters(service).all<MeterRow>();
    return results.map(meterOf);
  }

  /** All that is sold, by service. */
  async sold(): Promise<Sold[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT s.name, m.description, m.price, m.credit_only AS creditOnly FROM services s
         JOIN meters m ON m.service = s.slug WHERE s.enabled = 1 ORDER BY s.name, m.price DESC LIMIT ${MOST_SOLD}`,
      )
      .all<Omit<Sold, 'creditOnly'> & { creditOnly: number }>();
    return results.map((row) => ({ ...row, creditOnly: row.creditOnly === 1 }));
  }

  async plan(service: string, id: string): Promise<Plan | undefined> {
    const row = await this.#db
      .prepare(`${PLANS} service = ? AND id = ? AND enabled = 1`)
      .bind(service, id)
      .first<Plan>();
    return row ?? undefined;
  }

  /** The smallest first. */
  async plans(service: string): Promise<Plan[]> {
    const { results } = await this.#plans(service).all<Plan>();
    return results;
  }

  /** Where credit for the service is bought. */
  creditPayUrl({ creditService }: Pick<Service, 'creditService'>): string {
    return `${this.#payUrl}/${creditService}`;
  }

  /** @returns undefined where the service or a meter is not known */
  price(serviceSlug: string, usage: readonly UsageLine[]): Promise<Price | undefined> {
    return ask(this.#db, this.priceOf(serviceSlug, usage));
  }

  /** The same as a question, to be asked with others. */
  priceOf(serviceSlug: string, usage: readonly UsageLine[]): Question<Price | undefined> {
    return {
      statements: [this.#service(serviceSlug), this.#meters(serviceSlug), this.#plansFor(serviceSlug)],
      read: ([services, meters, plans]) => {
        const service = this.#known(services?.[0] as Service | undefined);
        if (!service) return undefined;
        return priced(service, (meters ?? []) as MeterRow[], plans?.[0] as Plan | undefined, usage);
      },
    };
  }

  #service(slug: string): Statement {
    return this.#db
      .prepare(
        'SELECT slug, origin, name, credit_service AS creditService FROM services WHERE slug = ? AND enabled = 1',
      )
      .bind(slug);
  }

  #known(row: Service | undefined): Service | undefined {
    return row && { ...row, origin: row.origin.replace('{app_url}', this.#appUrl).replace(/\/$/, '') };
  }

  #meters(service: string): Statement {
    return this.#db
      .prepare(
        'SELECT service, slug, price, credit_only AS creditOnly, description FROM meters WHERE service = ? ORDER BY slug',
      )
      .bind(service);
  }

  #plans(service: string): Statement {
    return this.#db.prepare(`${PLANS} service = ? AND enabled = 1 ORDER BY minimum, id`).bind(service);
  }

  /** Of the service whose credit pays for this one. */
  #plansFor(service: string): Statement {
    return this.#db
      .prepare(
        `${PLANS} service = (SELECT credit_service FROM services WHERE slug = ?) AND enabled = 1 ORDER BY minimum, id`,
      )
      .bind(service);
  }
}

/** @returns undefined where a meter is not known, or more is asked than can be paid */
function priced(
  service: Service,
  rows: readonly MeterRow[],
  plan: Plan | undefined,
  usage: readonly UsageLine[],
): Price | undefined {
  const meters = new Map(rows.map((row) => [row.slug, meterOf(row)]));
  let amount = 0;
  let creditOnly = false;
  const descriptions: string[] = [];
  for (const { meterSlug, quantity } of usage) {
    const meter = meters.get(meterSlug);
    if (!meter) return undefined;
    amount += meter.price * quantity;
    creditOnly ||= meter.creditOnly;
    descriptions.push(quantity === 1 ? meter.description : `${quantity} × ${meter.description}`);
  }
  if (amount > MOST) return undefined;
  return {
    service,
    usage: [...usage],
    amount,
    creditOnly,
    description: `${service.name}: ${descriptions.join(', ')}`,
    plan,
  };
}

function meterOf(row: MeterRow): Meter {
  return { ...row, creditOnly: row.creditOnly === 1 };
}

/** Checks usage that came over the wire. @returns undefined for anything that is not usage */
export function parseUsage(value: unknown): UsageLine[] | undefined {
  if (!Array.isArray(value) || value.length === 0 || value.length > MOST_LINES) return undefined;
  const lines: UsageLine[] = [];
  for (const line of value as unknown[]) {
    const { meterSlug, quantity } = (line ?? {}) as Partial<UsageLine>;
    if (typeof meterSlug !== 'string' || !SLUG.test(meterSlug)) return undefined;
    if (!Number.isSafeInteger(quantity) || !quantity || quantity < 1 || quantity > MOST_QUANTITY) return undefined;
    lines.push({ meterSlug, quantity });
  }
  return lines;
}

/** Names of services, meters and plans. */
export const SLUG = /^[a-z0-9][a-z0-9_-]{0,63}$/;
