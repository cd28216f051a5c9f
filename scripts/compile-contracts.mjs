// Compiles host/local-network/contracts/*.sol into host/local-network/contracts/generated/*.ts, which are committed.
// Run it after changing a contract: `node scripts/compile-contracts.mjs`; with `--check` it only compares.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const solc = createRequire(import.meta.url)('solc');
const folder = join(dirname(fileURLToPath(import.meta.url)), '../host/local-network/contracts');
const files = readdirSync(folder).filter((name) => name.endsWith('.sol'));

const output = JSON.parse(
  solc.compile(
    JSON.stringify({
      language: 'Solidity',
      sources: Object.fromEntries(files.map((name) => [name, { content: readFileSync(join(folder, name), 'utf8') }])),
      settings: {
        optimizer: { enabled: true, runs: 200 },
        viaIR: true,
        evmVersion: 'cancun',
        metadata: { appendCBOR: false, bytecodeHash: 'none' },
        outputSelection: { '*': { '*': ['abi', 'evm.bytecode.object', 'evm.deployedBytecode.object'] } },
      },
    }),
  ),
);

const problems = (output.errors ?? []).filter((error) => error.severity !== 'info');
for (const problem of problems) console.error(problem.formattedMessage);
if (problems.length > 0) process.exit(1);

let stale = false;
for (const file of files) {
  const name = file.replace(/\.sol$/, '');
  const contract = output.contracts[file][name];
  const target = join(folder, 'generated', `${kebab(name)}.ts`);
  const text = [
    `/** Generated from ${file} by scripts/compile-contracts.mjs with solc ${solc.version()}. Do not edit. */`,
    `export const ${camel(name)} = ${JSON.stringify(
      {
        abi: contract.abi,
        bytecode: `0x${contract.evm.bytecode.object}`,
        runtime: `0x${contract.evm.deployedBytecode.object}`,
      },
      null,
      1,
    )} as const;`,
    '',
  ].join('\n');
  if (process.argv.includes('--check')) {
    if (readFileSync(target, 'utf8') !== text) {
      console.error(`${target} is stale: run node scripts/compile-contracts.mjs`);
      stale = true;
    }
  } else {
    writeFileSync(target, text);
    console.log(`${name}: ${contract.evm.deployedBytecode.object.length / 2} bytes`);
  }
}
process.exit(stale ? 1 : 0);

function kebab(name) {
  return name.replace(/(?!^)([A-Z])/g, '-$1').toLowerCase();
}

function camel(name) {
  return name[0].toLowerCase() + name.slice(1);
}
