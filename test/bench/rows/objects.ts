/** Rows about what keeps state in an instance: Durable Objects, queues, workflows. */
import { compare } from '../compare.ts';
import { miniflare } from '../peers/miniflare.ts';
import { turnpike } from '../peers/turnpike.ts';
import { bareObjects } from '../peers/workerd.ts';
import { SharedSubjects } from '../subject.ts';
import type { RowResult } from '../table.ts';
import { OBJECTS } from '../workers.ts';
import { target } from './requests.ts';

interface Row {
  id: string;
  title: string;
  path: string;
  connections?: number;
  /** Miniflare does not keep it. */
  inMemory?: boolean;
}

const ROWS: Row[] = [
  { id: 'object-call', title: 'Durable Object, a method of one object', path: '/object/call' },
  { id: 'object-write', title: 'Durable Object, 1 KiB written by one of 16 objects', path: '/object/write' },
  {
    id: 'queue',
    title: 'Queue, 100 messages sent and consumed, 4 times at once (kept on the disk; Miniflare’s are in memory)',
    path: '/queue',
    connections: 4,
    inMemory: true,
  },
  {
    id: 'workflow',
    title: 'Workflow of five steps, from create to complete, 8 at once',
    path: '/workflow',
    connections: 8,
  },
];

/** Peers have no limit of memory. workerd keeps an ended workflow for ten seconds, 0.3 MB each, ninety a second here. */
const MEMORY = 1_073_741_824;

const BINDINGS = {
  durableObjects: { OBJECTS: { class: 'Counter' } },
  queues: { JOBS: { queue: 'jobs', consumer: { maxBatchSize: 100, maxBatchTimeout: 0 } } },
  workflows: { FLOWS: { class: 'Flow', name: 'flow' } },
};

export function objectRows(): { id: string; run(): Promise<RowResult>; subjects: SharedSubjects }[] {
  const subjects = new SharedSubjects();
  const starters = [
    turnpike(OBJECTS, BINDINGS, { flags: { 'runtime-memory-bytes': String(MEMORY) } }),
    bareObjects(OBJECTS, BINDINGS),
    miniflare({ code: OBJECTS, objects: true }),
  ].map((one) => subjects.share(one));
  return ROWS.map(({ id, title, path, connections, inMemory }) => ({
    id,
    subjects,
    async run() {
      const load = { path, ...(connections === undefined ? {} : { connections }) };
      const { runs, figures, skipped } = await compare(starters, { load });
      const targets = [
        ...target(runs, 'bare workerd', 'perSecond', '≥', 0.8, 'req/s'),
        ...(inMemory ? [] : target(runs, 'Miniflare', 'perSecond', '≥', 1, 'req/s')),
      ];
      return { id, title, figures, skipped, targets };
    },
  }));
}
