import { test } from 'vitest';

test('x', () => {});
