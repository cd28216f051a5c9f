import { expect, it } from 'vitest';
import type { Folders } from '../../host/supervisor/folders.ts';
import type { RunningHost } from '../../host/supervisor/host.ts';
import { startScreen } from '../../host/supervisor/screens.ts';

function screen(network: Partial<RunningHost['network']>): string {
  const host = {
    url: 'http://localhost:1',
    port: 1,
    adminPort: 2,
    freshOperatorToken: undefined,
    isolation: { level: 'none', detail: '' },
    network: { name: 'tempo', testMoney: false, wallets: [], ...network },
  };
  return startScreen(host, { data: '/data' } as Folders, '0.0.0');
}

it('the start screen says that the payment network does not answer, and what to do', () => {
  expect(screen({ fault: 'Tempo does not answer' })).toMatch(/Tempo does not answer: .* check payments\.rpcUrl/);
  expect(screen({})).not.toContain('rpcUrl');
});
