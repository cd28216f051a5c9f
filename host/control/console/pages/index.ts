/** The pages of the operator's console, in the order of the navigation: a new one is a file here, and one line. */
import type { ConsolePage } from '../page.ts';
import { auditPage } from './audit.ts';
import { backupsPage } from './backups.ts';
import { blocksPage } from './blocks.ts';
import { domainsPage } from './domains.ts';
import { moneyPage } from './money.ts';
import { overviewPage } from './overview.ts';
import { servicesPage } from './services.ts';
import { settingsPage } from './settings.ts';
import { tenantPage } from './tenant.ts';
import { tenantsPage } from './tenants.ts';

export const CONSOLE_PAGES: readonly ConsolePage[] = [
  overviewPage,
  tenantsPage,
  tenantPage,
  moneyPage,
  servicesPage,
  domainsPage,
  backupsPage,
  blocksPage,
  auditPage,
  settingsPage,
];
