/** `turnpike domains`: attaches, lists and detaches custom domains. */
import { Command } from 'commander';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface DomainView {
  domain: string;
  state: string;
  reason?: string;
  dns: { type: string; name: string; value: string; note?: string }[];
}

export function domainsCommand(deps?: CommandDeps): Command {
  const command = new Command('domains').description('custom domains of your deployment');
  command
    .command('add')
    .description('attach a domain; shows what to set in the DNS')
    .argument('<slug>')
    .argument('<domain>')
    .action(
      withSession(deps, async (session, slug: string, domain: string) => {
        const view = await (await session.host()).own<DomainView>('POST', domainsPath(slug), { domain });
        session.printer.result(view, domainText(view));
      }),
    );
  command
    .command('rm')
    .description('detach a domain')
    .argument('<slug>')
    .argument('<domain>')
    .action(
      withSession(deps, async (session, slug: string, domain: string) => {
        await (await session.host()).own('DELETE', `${domainsPath(slug)}/${encodeURIComponent(domain)}`);
        session.printer.result({ slug, domain, detached: true }, `${domain} is detached`);
      }),
    );
  command
    .command('ls')
    .description('list domains with their state')
    .argument('<slug>')
    .action(
      withSession(deps, async (session, slug: string) => {
        const found = await (await session.host()).own<{ domains: DomainView[] }>('GET', domainsPath(slug));
        session.printer.result(found, found.domains.map(domainText).join('\n\n') || 'no domains');
      }),
    );
  return command;
}

function domainsPath(slug: string): string {
  return `/_admin/${encodeURIComponent(slug)}/domains`;
}

function domainText({ domain, state, reason, dns }: DomainView): string {
  const head = `${domain}  ${state}${reason === undefined ? '' : `: ${reason}`}`;
  if (state === 'active') return head;
  return `${head}\n${table(dns.map(({ type, name, value, note }) => [`  ${type}`, name, value, note ?? '']))}`;
}
