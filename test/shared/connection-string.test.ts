import { describe, expect, test } from 'vitest';
import { parseConnectionString } from '../../host/shared/connection-string.ts';

describe('a connection string', () => {
  test('names a database, with defaults', () => {
    expect(parseConnectionString('postgres://me:p%40ss%2Fw%20d@DB.example.com/shop')).toEqual({
      ...{ scheme: 'postgresql', host: 'db.example.com', port: 5432, user: 'me', password: 'p@ss/w d' },
      ...{ database: 'shop', tls: 'verify-full' },
    });
    expect(parseConnectionString('mysql://me@[2001:DB8::1]:80/a?charset=utf8mb4')).toEqual({
      ...{ scheme: 'mysql', host: '[2001:db8::1]', port: 80, user: 'me', password: '', database: 'a' },
      tls: 'verify-full',
    });
    expect(parseConnectionString('postgresql://u:p@0x7f000001/d')).toMatchObject({ host: '127.0.0.1' });
  });

  test.each([
    ['postgres://u:p@h/d?sslmode=require&channel_binding=require', 'require'],
    ['postgres://u:p@h/d?sslmode=VERIFY-CA', 'verify-ca'],
    ['postgres://u:p@h/d?sslmode=disable', 'disable'],
    ['mysql://u:p@h/d?ssl-mode=REQUIRED', 'require'],
    ['mysql://u:p@h/d?sslMode=VERIFY_IDENTITY', 'verify-full'],
    ['mysql://u:p@h/d?ssl-mode=VERIFY_CA', 'verify-ca'],
    ['mysql://u:p@h/d?ssl-mode=disabled', 'disable'],
    ['postgres://u:p@h/d?sslrootcert=system', 'verify-full'],
  ])('%s: TLS is %s', (text, tls) => {
    expect(parseConnectionString(text)).toMatchObject({ tls });
  });

  test.each([
    ['', /is no connection string/],
    ['hunter2hunter2', /is no connection string/],
    ['https://u:hunter2@h/d', /is no connection string/],
    ['postgres:///hunter2', /has no host/],
    ['postgres://hunter2@h', /has no database/],
    ['postgres://:hunter2@h/d', /has no user/],
    ['postgres://u:hunter2@h/d/e', /has no database/],
    ['postgres://u:hunter2%@h/d', /has a % that is no part/],
    ['postgres://u:hunter2%00@h/d', /NUL/],
    ['postgres://u:hunter2@h:0/d', /port 0/],
    ['postgres://u:hunter2@h/d?sslmode=prefer', /sslmode/],
    ['postgres://u:hunter2@h/d?sslmode=constructor', /sslmode/],
    ['postgres://u:hunter2@h/d?sslmode=verify-full&sslrootcert=/hunter2.pem', /sslrootcert/],
  ])('%s is refused in words that have nothing of it', (text, why) => {
    const refusal = parseConnectionString(text);
    expect(refusal).toMatch(why);
    expect(refusal).not.toContain('hunter2');
  });
});
