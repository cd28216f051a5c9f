/** How each endpoint is called, in four ways: curl, JavaScript, Python, the turnpike command. */
import type { Endpoint } from '../endpoint.ts';

/** What /docs says of an endpoint beside its description. */
export interface Example {
  /** Heading that it stands under. */
  group: string;
  /** The command that does it. */
  command: string;
  body?: object;
  query?: string;
  /** A body that is no JSON. */
  file?: string;
}

const HELLO = 'export default { fetch: () => new Response("hi") }';

/** By method and path. A test says when one is missing. */
export const EXAMPLES: Record<string, Example> = {
  'POST /_admin/deploy': {
    group: 'Deployments',
    command: 'turnpike deploy hello.js --slug hello --yes',
    body: { slug: 'hello', code: HELLO },
  },
  'POST /_admin/renew/:slug': { group: 'Deployments', command: 'turnpike renew hello --yes' },
  'POST /_admin/renew/:slug/auto': {
    group: 'Deployments',
    command: 'turnpike renew hello --auto',
    body: { until: '2027-10-31T00:00:00Z' },
  },
  'GET /_admin/renew/:slug/auto': { group: 'Deployments', command: 'turnpike renew hello --auto' },
  'PUT /_admin/renew/:slug/auto': {
    group: 'Deployments',
    command: 'turnpike account renew hello',
    body: { credit: 'rnw_…' },
  },
  'DELETE /_admin/renew/:slug/auto': { group: 'Deployments', command: 'turnpike renew hello --no-auto' },
  'PUT /_admin/code/:slug': {
    group: 'Deployments',
    command: 'turnpike update hello.js --slug hello',
    body: { code: HELLO },
  },
  'DELETE /_admin/:slug': { group: 'Deployments', command: 'turnpike delete hello --yes' },
  'GET /_admin/get/:slug': { group: 'Deployments', command: 'turnpike get hello' },
  'GET /_admin/deployments': { group: 'Deployments', command: 'turnpike list' },
  'POST /_admin/session/:slug': { group: 'Tokens and keys', command: 'turnpike session hello' },
  'POST /_admin/sign-in': {
    group: 'Tokens and keys',
    command: 'turnpike session hello',
    body: { address: '0x0000000000000000000000000000000000000001' },
  },
  'POST /_admin/session': {
    group: 'Tokens and keys',
    command: 'turnpike session hello',
    body: { nonce: 'of the sign-in', address: '0x0000000000000000000000000000000000000001', signature: '0x…' },
  },
  'DELETE /_admin/session': { group: 'Tokens and keys', command: 'turnpike session hello' },
  'GET /_admin/:slug/secrets': { group: 'Deployments', command: 'turnpike get hello' },
  'POST /_admin/keys': {
    group: 'Tokens and keys',
    command: 'turnpike keys create --slugs hello --actions update,logs --until 90d',
    body: { slugs: ['hello'], actions: ['update', 'logs'], until: '2027-03-01T00:00:00Z' },
  },
  'GET /_admin/keys': { group: 'Tokens and keys', command: 'turnpike keys list' },
  'DELETE /_admin/keys/:id': { group: 'Tokens and keys', command: 'turnpike keys revoke <id>' },
  'GET /_admin/:slug/logs': { group: 'Logs and usage', command: 'turnpike logs hello', query: '?limit=50' },
  'GET /_admin/:slug/usage': { group: 'Logs and usage', command: 'turnpike usage hello', query: '?days=7' },
  'GET /_admin/:slug/crons': { group: 'Logs and usage', command: 'turnpike crons hello' },
  'GET /_admin/:slug/versions': { group: 'Versions', command: 'turnpike versions hello' },
  'POST /_admin/:slug/rollback': {
    group: 'Versions',
    command: 'turnpike rollback hello 3',
    body: { version: 3 },
  },
  'POST /_admin/:slug/domains': {
    group: 'Domains',
    command: 'turnpike domains add hello api.example.com',
    body: { domain: 'api.example.com' },
  },
  'GET /_admin/:slug/domains': { group: 'Domains', command: 'turnpike domains ls hello' },
  'DELETE /_admin/:slug/domains/:domain': { group: 'Domains', command: 'turnpike domains rm hello api.example.com' },
  'POST /_admin/:slug/assets': {
    group: 'Static files',
    command: 'turnpike update --slug hello',
    body: { hashes: ['e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'] },
  },
  'PUT /_admin/:slug/assets/:sha256': {
    group: 'Static files',
    command: 'turnpike update --slug hello',
    file: 'index.html',
  },
  'POST /_admin/:slug/data/:binding': {
    group: 'Data',
    command: "turnpike d1 execute --slug hello --command 'SELECT 1'",
    body: { statements: [{ sql: 'SELECT ? AS one', params: [1] }] },
  },
  'GET /_admin/:slug/data/:binding': {
    group: 'Data',
    command: 'turnpike kv list --slug hello',
    query: '?prefix=user:',
  },
  'GET /_admin/:slug/data/:binding/value': {
    group: 'Data',
    command: 'turnpike kv get user:1 --slug hello',
    query: '?key=user:1',
  },
  'PUT /_admin/:slug/data/:binding/value': {
    group: 'Data',
    command: "turnpike kv put user:1 'Ann' --slug hello",
    query: '?key=user:1',
    file: 'ann.txt',
  },
  'DELETE /_admin/:slug/data/:binding/value': {
    group: 'Data',
    command: 'turnpike kv delete user:1 --slug hello',
    query: '?key=user:1',
  },
};

const SAMPLES: Record<string, string> = {
  slug: 'hello',
  domain: 'api.example.com',
  binding: 'STORE',
  id: 'KEY_ID',
  sha256: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
};

export function exampleOf({ method, path }: Pick<Endpoint, 'method' | 'path'>): Example | undefined {
  return EXAMPLES[`${method} ${path}`];
}

/** The same call in each language; the first is shown. */
export function callsOf(
  endpoint: Pick<Endpoint, 'method' | 'path' | 'access'>,
  { command, body, query = '', file }: Example,
  publicUrl: string,
): { name: string; text: string }[] {
  const { method, access } = endpoint;
  const binding = command.includes(' d1 ') ? 'DB' : 'STORE';
  const path = endpoint.path.replace(/:(\w+)/g, (_, name: string) =>
    name === 'binding' ? binding : (SAMPLES[name] ?? name),
  );
  const url = `${publicUrl}${path}${query}`;
  // A token is for one slug; making tokens and keys takes the wallet.
  const token = access === 'owner' && endpoint.path.includes(':slug') && !path.startsWith('/_admin/session/');
  const asks = access !== 'public' && !token;
  const parts = { method, url, body, file, token, command };
  return [
    { name: 'curl', text: curl(parts, asks) },
    { name: 'JavaScript', text: javascript(parts, asks) },
    { name: 'Python', text: asks ? pythonCommand(command) : python(parts) },
    { name: 'turnpike', text: command },
  ];
}

interface Parts {
  method: string;
  url: string;
  body: object | undefined;
  file: string | undefined;
  token: boolean;
}

function curl({ method, url, body, file, token }: Parts, asks: boolean): string {
  const lines = [`curl${asks ? ' -i' : ''}${method === 'GET' ? '' : ` -X ${method}`} '${url}'`];
  if (token) lines.push('-H "authorization: Bearer $TOKEN"');
  if (body) lines.push("-H 'content-type: application/json'", `-d '${JSON.stringify(body)}'`);
  if (file !== undefined) lines.push(`--data-binary @${file}`);
  return `${asks ? '# Answers 402: what a wallet has to sign or pay.\n' : ''}${lines.join(' \\\n  ')}`;
}

function javascript({ method, url, body, file, token }: Parts, asks: boolean): string {
  const headers = [
    ...(token ? ["authorization: 'Bearer ' + process.env.TOKEN"] : []),
    ...(body ? ["'content-type': 'application/json'"] : []),
  ];
  const members = [
    ...(method === 'GET' ? [] : [`  method: '${method}',`]),
    ...(headers.length === 0 ? [] : [`  headers: { ${headers.join(', ')} },`]),
    ...(body ? [`  body: JSON.stringify(${JSON.stringify(body)}),`] : []),
    ...(file === undefined ? [] : [`  body: await fs.promises.readFile('${file}'),`]),
  ];
  const options = members.length === 0 ? '' : `, {\n${members.join('\n')}\n}`;
  const start = file === undefined ? '' : "import fs from 'node:fs';\n";
  return `${start}const answer = await ${asks ? 'pay.' : ''}fetch('${url}'${options});\nconsole.log(answer.status, await answer.text());`;
}

function python({ method, url, body, file, token }: Parts): string {
  const headers = [
    ...(token ? ["'authorization': 'Bearer ' + os.environ['TOKEN']"] : []),
    ...(body ? ["'content-type': 'application/json'"] : []),
  ];
  const given = [
    `'${url}'`,
    ...(method === 'GET' ? [] : [`method='${method}'`]),
    ...(body ? [`data=json.dumps(${pythonValue(body)}).encode()`] : []),
    ...(file === undefined ? [] : [`data=open('${file}', 'rb').read()`]),
    ...(headers.length === 0 ? [] : [`headers={${headers.join(', ')}}`]),
  ];
  const modules = [...(body ? ['json'] : []), ...(token ? ['os'] : []), 'urllib.request'];
  return `import ${modules.join(', ')}\n\nrequest = urllib.request.Request(\n    ${given.join(',\n    ')},\n)\nprint(urllib.request.urlopen(request).read().decode())`;
}

/** Signing takes a wallet: the command has one. */
function pythonCommand(command: string): string {
  const words = [...command.matchAll(/'[^']*'|\S+/g)].map(([word]) => `'${word.replace(/^'|'$/g, '')}'`);
  return `import json, subprocess\n\nanswer = subprocess.run([${[...words, "'--json'"].join(', ')}],\n                        capture_output=True, check=True)\nprint(json.loads(answer.stdout))`;
}

/** JSON is Python, but for its three words; strings are left as they are. */
function pythonValue(value: object): string {
  return JSON.stringify(value).replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, (part) =>
    part === 'true' ? 'True' : part === 'false' ? 'False' : part === 'null' ? 'None' : part,
  );
}

/** What the examples in JavaScript begin with. */
export function javascriptSetUp(mppxPackages: string, rpcUrl: string | undefined): string {
  const local =
    rpcUrl === undefined
      ? { imports: '', client: '', option: '' }
      : {
          imports: "import { createClient, http } from 'viem';\nimport { tempoLocalnet } from 'viem/chains';\n",
          client: `const getClient = ({ chainId }) =>\n  createClient({ chain: { ...tempoLocalnet, id: chainId }, transport: http('${rpcUrl}') });\n`,
          option: ', getClient',
        };
  return `// npm install ${mppxPackages}
import { Mppx, tempo } from 'mppx/client';
import { privateKeyToAccount } from 'viem/accounts';
${local.imports}
const account = privateKeyToAccount(process.env.MPPX_PRIVATE_KEY);
${local.client}export const pay = Mppx.create({ methods: [tempo({ account${local.option} })], polyfill: false });`;
}
