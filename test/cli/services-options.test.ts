import { describe, expect, test } from 'vitest';
import { withServices } from '../../host/cli/project/manifest.ts';
import { Failure } from '../../host/cli/terminal/failure.ts';

const WALLET = `0x${'a'.repeat(40)}`;

describe('--service and --open', () => {
  test('are bindings beside those of the project', () => {
    const services = { INNER: { entrypoint: 'Inner' } };
    const opened = [WALLET, `${WALLET}/shop`, `Api=${WALLET}`];
    expect(withServices({ kv: true, services }, ['AUTH=auth', 'ADMIN=auth/Admin', 'OWN=/Own'], opened)).toEqual({
      kv: true,
      services: {
        INNER: { entrypoint: 'Inner' },
        AUTH: { service: 'auth' },
        ADMIN: { service: 'auth', entrypoint: 'Admin' },
        OWN: { entrypoint: 'Own' },
        OPEN: { open: [WALLET, `${WALLET}/shop`] },
        OPEN_Api: { entrypoint: 'Api', open: [WALLET] },
      },
    });
    expect(withServices({ kv: true }, [], [])).toEqual({ kv: true });
  });

  test.each(['auth', 'AUTH=', 'AUTH=Auth', 'A B=auth', 'AUTH=auth/'])('--service %s is refused', (text) => {
    expect(() => withServices({}, [text], [])).toThrow(Failure);
  });

  test.each(['shop', '0x1', `Api=shop`, `${WALLET}/Shop`])('--open %s is refused', (text) => {
    expect(() => withServices({}, [], [text])).toThrow(Failure);
  });
});
