/** Seals the keys of a cluster anew; to be killed meanwhile. */
import { sealAnew } from '../../../host/registry/key-file.ts';
import { openWithoutNodes } from '../../../host/registry/postgres/index.ts';

const [url = '', from = '', to = ''] = process.argv.slice(2);
const registry = await openWithoutNodes(url);
process.send?.('begins');
await sealAnew(registry, from, to);
await registry.close();
process.disconnect();
