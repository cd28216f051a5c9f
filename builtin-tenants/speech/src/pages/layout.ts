/** The frame of the pages for people. */
import { page as lookPage, type PageParts } from '../../../kit/look/layout.ts';
import { lookFile } from '../../../kit/look/tenant.ts';
import type { Settings } from '../settings.ts';

interface SpeechPage extends Pick<PageParts, 'title' | 'head' | 'main' | 'width'> {
  settings: Settings;
  /** Path of this service on its origin; empty on a host name of its own. */
  prefix: string;
  here: 'Speech' | 'Docs';
}

export function page({ settings, prefix, here, ...parts }: SpeechPage) {
  return lookPage({
    ...parts,
    site: 'Speech',
    description: 'Transcription, text to speech and text intelligence, paid per call; no account.',
    style: lookFile(prefix),
    places: settings.places,
    at: 'Speech',
    pages: [
      { name: 'Speech', href: `${prefix}/` },
      { name: 'Docs', href: `${prefix}/docs` },
    ],
    page: here,
    foot: [
      { name: 'llms.txt', href: `${prefix}/llms.txt` },
      { name: 'OpenAPI', href: `${prefix}/openapi.json` },
      { name: 'Status', href: `${prefix}/healthz` },
    ],
  });
}
