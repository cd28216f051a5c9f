/**
 * GET /healthz: whether the tenant works and which engine stands behind each operation. 200 even where an engine is
 * missing: the tenant itself answers, and says what to do.
 */
import { EmbeddedEngine } from '../engines/embedded.ts';
import type { EngineName, Settings } from '../settings.ts';

export interface OperationHealth {
  ok: boolean;
  engine: EngineName;
  detail?: unknown;
  fix?: string;
  /** It works, and callers should know this before they pay. */
  warning?: string;
}

/** What a model is called; for an engine elsewhere its own name. */
export function listener({ engine, detail }: OperationHealth): string {
  const model = typeof detail === 'object' && detail !== null && 'engine' in detail ? detail.engine : undefined;
  return typeof model === 'string' ? model : engine;
}

/** Measured: 1 to 8 % of words are wrong where flite speaks, 30 to 60 % where people do. */
const POCKETSPHINX =
  'Only pocketsphinx transcribes here: it hears clear machine voices, and mishears people. The operator can install a model: turnpike speech models.';

export async function health(settings: Settings): Promise<{
  status: 'ok' | 'degraded';
  engines: Record<'listen' | 'speak' | 'read', OperationHealth>;
}> {
  const embedded = await new EmbeddedEngine(settings.engineUrl).health().catch(() => undefined);
  const one = (operation: 'listen' | 'speak' | 'read', engine: EngineName): OperationHealth => {
    if (engine !== 'embedded') return { ok: true, engine };
    const state = embedded?.[operation];
    if (typeof state !== 'object' || state === null || !('ok' in state)) {
      return {
        ok: false,
        engine,
        fix: 'The speech engine does not answer: it is starting, or switched off (speech.engine).',
      };
    }
    const fix = 'fix' in state && typeof state.fix === 'string' ? { fix: state.fix } : {};
    const warning = 'arch' in state && state.arch === 'pocketsphinx' ? { warning: POCKETSPHINX } : {};
    return { ok: state.ok === true, engine, detail: state, ...fix, ...warning };
  };
  const engines = {
    listen: one('listen', settings.listenEngine),
    speak: one('speak', settings.speakEngine),
    read: one('read', settings.readEngine),
  };
  return { status: Object.values(engines).every(({ ok }) => ok) ? 'ok' : 'degraded', engines };
}
