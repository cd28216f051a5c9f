// `npm run test:long -- [file …]`: tests that take minutes each, such as a simulated month. Last line as in `npm test`.
import { prepare } from './launch.mjs';
import { runTests } from './vitest.mjs';

const node = await prepare({ development: true });
const { passed, failed } = await runTests(
  node,
  'long',
  process.argv.slice(2).filter((arg) => !arg.startsWith('--')),
);
console.log(`\n${passed} passed, ${failed} failed`);
process.exit(failed > 0 || passed === 0 ? 1 : 0);
