/** `turnpike services`: what the pay platform of this host sells, and for how much; for its operator. */
import { Command } from 'commander';
import { callOperator } from './operator-client.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Services {
  services: {
    slug: string;
    origin: string;
    enabled: boolean;
    creditService: string;
    meters: { slug: string; priceUsd: string; creditOnly: boolean; description: string }[];
    plans: { id: string; minimumUsd: string; expiresAfterDays: number | null }[];
  }[];
}

export function servicesCommand(deps?: CommandDeps): Command {
  const command = new Command('services').description('operator: what the pay platform sells, and its prices');
  command.command('ls').description('services, meters and plans').action(withSession(deps, list));
  command
    .command('set')
    .description('put an API behind the gateway, or change where it is')
    .argument('<service>')
    .argument('<origin>', 'such as https://api.example.com, or {app_url}/slug for a tenant of this host')
    .option('--name <text>', 'shown to payers')
    .option('--credit-service <service>', 'service whose plans sell its credit; default: itself')
    .option('--disable', 'take it off the gateway')
    .action(
      withSession(
        deps,
        async (
          session,
          service: string,
          origin: string,
          options: { name?: string; creditService?: string; disable?: boolean },
        ) => {
          const { name, creditService, disable } = options;
          const body = {
            origin,
            enabled: !disable,
            ...(name ? { name } : {}),
            ...(creditService ? { creditService } : {}),
          };
          await put(session, path(service), body, `${service} is at ${origin}`);
        },
      ),
    );
  command
    .command('meter')
    .description('set the price of a meter')
    .argument('<service>')
    .argument('<meter>')
    .argument('<usd>', 'price of one unit, such as 0.15')
    .option('--credit-only', 'sold from prepaid credit only')
    .option('--description <text>', 'shown to payers')
    .action(
      withSession(
        deps,
        async (
          session,
          service: string,
          meter: string,
          priceUsd: string,
          options: { creditOnly?: boolean; description?: string },
        ) => {
          const known = await find(session, service, meter);
          const body = {
            priceUsd,
            creditOnly: options.creditOnly ?? known?.creditOnly ?? false,
            description: options.description ?? known?.description ?? meter,
          };
          await put(
            session,
            `${path(service)}/meters/${encodeURIComponent(meter)}`,
            body,
            `${meter} costs ${priceUsd} USD`,
          );
        },
      ),
    );
  command
    .command('plan')
    .description('set a plan by which credit is bought')
    .argument('<service>')
    .argument('<plan>')
    .argument('<usd>', 'smallest purchase, such as 5.00')
    .option('--expires-after-days <days>', 'life of the credit; default: it does not expire', Number)
    .action(
      withSession(
        deps,
        async (session, service: string, plan: string, minimumUsd: string, options: { expiresAfterDays?: number }) => {
          const target = `${path(service)}/plans/${encodeURIComponent(plan)}`;
          await put(session, target, { minimumUsd, ...options }, `${plan} sells from ${minimumUsd} USD`);
        },
      ),
    );
  command
    .command('key')
    .description('make a key with which an origin charges credit; it is shown once')
    .argument('<service>')
    .action(
      withSession(deps, async (session, service: string) => {
        const { key } = JSON.parse((await callOperator(session, 'POST', `${path(service)}/keys`, {})).text) as {
          key: string;
        };
        session.printer.result({ service, key }, key);
      }),
    );
  command
    .command('grant')
    .description('give credit to an account')
    .argument('<account>')
    .argument('<usd>')
    .option('--memo <text>', 'shown on the statement')
    .option('--expires-at <time>', 'ISO 8601')
    .action(
      withSession(
        deps,
        async (session, accountId: string, amountUsd: string, options: { memo?: string; expiresAt?: string }) => {
          const answer = await callOperator(session, 'POST', '/pay/grants', { accountId, amountUsd, ...options });
          const { balanceUsd } = JSON.parse(answer.text) as { balanceUsd: string };
          session.printer.result({ accountId, balanceUsd }, `the account has ${balanceUsd} USD`);
        },
      ),
    );
  return command;
}

async function list(session: Session): Promise<void> {
  const found = await services(session);
  const rows = found.services.flatMap(({ slug, origin, enabled, meters, plans }) => [
    [slug, '', '', enabled ? origin : `${origin} (off)`],
    ...meters.map((meter) => [
      '',
      meter.slug,
      meter.priceUsd,
      meter.creditOnly ? `${meter.description} (credit)` : meter.description,
    ]),
    ...plans.map((plan) => ['', `plan ${plan.id}`, `from ${plan.minimumUsd}`, '']),
  ]);
  session.printer.result(found, table([['service', 'meter', 'usd', ''], ...rows]));
}

async function services(session: Session): Promise<Services> {
  return JSON.parse((await callOperator(session, 'GET', '/pay/services')).text) as Services;
}

async function find(session: Session, service: string, meter: string) {
  const found = (await services(session)).services.find(({ slug }) => slug === service);
  return found?.meters.find(({ slug }) => slug === meter);
}

async function put(session: Session, target: string, body: object, said: string): Promise<void> {
  await callOperator(session, 'PUT', target, body);
  session.printer.result({ ok: true, ...body }, said);
}

function path(service: string): string {
  return `/pay/services/${encodeURIComponent(service)}`;
}
