/** Programs beside built-in tenants. Those that ask for one reach it, and nobody else does. */

import path from 'node:path';
import { engineSettings, startSpeechEngine } from '../../../builtin-tenants/speech/engine/start.ts';
import { ModelShelf } from '../../../builtin-tenants/speech/models/shelf.ts';
import { type Companion, wantedCompanions } from '../../control/builtins.ts';
import { openMailer } from '../mailer.ts';
import { service } from '../service.ts';
import { builtins } from './base.ts';
import { config, folders, log } from './given.ts';

const wanted = service({
  name: 'wanted companions',
  needs: { config, builtins },
  start: ({ config, builtins }) => wantedCompanions(builtins, config.builtinTenants.enabled),
});

/** undefined: switched off */
export const speechEngine = service({
  name: 'speech engine',
  needs: { config, folders, log, wanted },
  start({ config, folders, log, wanted }) {
    if (!wanted.has('speech-engine') || !config.speech.engine) return undefined;
    const socket = path.join(folders.run, 'speech-engine.sock');
    const spool = path.join(folders.data, 'speech-spool');
    const shelf = new ModelShelf(folders.data);
    const settings = () => {
      const installed = { hears: shelf.inUse(), help: shelf.helpersInUse(), speak: shelf.voicesInUse() };
      return engineSettings(config.speech, { socket, spool }, installed);
    };
    return { engine: startSpeechEngine(settings, log, shelf), socket };
  },
  stop: (speech) => speech?.engine.stop(),
});

const mailer = service({
  name: 'mailer',
  needs: { config, folders, log, wanted },
  async start({ config, folders, log, wanted }) {
    if (!wanted.has('mailer')) return undefined;
    const mailer = await openMailer(config, folders, log);
    if (config.payments.network !== 'local' && !mailer) {
      log.warn(
        'the pay platform gives no welcome bonus: set mail.smtpUrl and mail.from, so that it can confirm addresses',
      );
    }
    return mailer;
  },
  stop: (mailer) => mailer?.close(),
});

/** Sockets of those that run, by name. */
export const companions = service({
  name: 'companions',
  needs: { speechEngine, mailer },
  start: ({ speechEngine, mailer }): Partial<Record<Companion, string>> => ({
    ...(speechEngine ? { 'speech-engine': speechEngine.socket } : {}),
    ...(mailer ? { mailer: mailer.socket } : {}),
  }),
});
