import { describe, expect, it } from 'vitest';
import { Notices } from '../../host/egress/notices.ts';
import type { EgressNotice } from '../../host/shared/contracts.ts';

const notice = (tenant: string, target: string) => ({
  tenant: tenant as EgressNotice['tenant'],
  slug: tenant,
  code: 'egress_refused' as const,
  target,
  detail: 'refused',
});

describe('notices to owners', () => {
  it('count what repeats', () => {
    const told: EgressNotice[][] = [];
    const notices = new Notices((all) => told.push(all));
    for (let i = 0; i < 1_000; i++) notices.add(notice('t1', '10.0.0.1:80'));
    notices.flush();
    notices.flush();
    expect(told).toEqual([[{ ...notice('t1', '10.0.0.1:80'), count: 1_000 }]]);
  });

  it('are bounded for each tenant, and one tenant’s flood does not silence another', () => {
    const told: EgressNotice[] = [];
    const notices = new Notices((all) => told.push(...all));
    for (let i = 0; i < 10_000; i++) notices.add(notice('t1', `10.0.${i >> 8}.${i & 255}:80`));
    notices.add(notice('t2', '10.1.1.1:80'));
    notices.flush();
    expect(told.filter(({ tenant }) => tenant === 't1')).toHaveLength(200);
    expect(told.filter(({ tenant }) => tenant === 't2')).toHaveLength(1);
  });
});
