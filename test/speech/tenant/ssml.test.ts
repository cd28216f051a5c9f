/** SSML: what is read of it and what it costs, and what is refused by name. */
import { describe, expect, it } from 'vitest';
import { SpeechFailure } from '../../../builtin-tenants/speech/src/failure.ts';
import { isSsml, readSsml, type SpokenPart } from '../../../builtin-tenants/speech/src/options/ssml.ts';
import { expectTime } from '../../times.ts';

const READ: [string, SpokenPart[], number][] = [
  ['<speak>Hello &amp; welcome.</speak>', [{ text: 'Hello & welcome.' }], 16],
  [
    '<?xml version="1.0"?>\n<speak version="1.1" xmlns="http://www.w3.org/2001/10/synthesis" xml:lang="en-US">\n  Wait\n  <break time="1.5s"/> here. <!-- a note -->\n</speak>',
    [{ text: 'Wait' }, { pauseMs: 1500 }, { text: 'here.' }],
    9,
  ],
  [
    '<speak><p><s>One.</s><s>Two.</s></p><p>Three.</p></speak>',
    [{ text: 'One.' }, { text: 'Two.' }, { pauseMs: 500 }, { text: 'Three.' }],
    14,
  ],
  ['<speak>A<break/><break strength="none"/>B</speak>', [{ text: 'A' }, { pauseMs: 400 }, { text: 'B' }], 2],
  [
    '<speak>Not <prosody rate="80%">so <prosody rate="+25%">very</prosody> fast</prosody>.</speak>',
    [{ text: 'Not' }, { text: 'so', rate: 0.8 }, { text: 'very' }, { text: 'fast', rate: 0.8 }, { text: '.' }],
    14,
  ],
  [
    '<speak>The <sub alias="World Wide Web Consortium"><!-- --></sub> rules.</speak>',
    [{ text: 'The World Wide Web Consortium rules.' }],
    36,
  ],
  // charged as it is written, however it is read out
  ['<speak>It is <say-as interpret-as="spell-out">ABC 7</say-as>.</speak>', [{ text: 'It is A, B, C, 7.' }], 12],
  ['<speak><say-as interpret-as="digits"> 2026 </say-as></speak>', [{ text: '2 0 2 6' }], 4],
  [
    '<speak><say-as interpret-as="telephone">+1 (555) 010-99</say-as></speak>',
    [{ text: '+, 1, 5 5 5, 0 1 0, 9 9' }],
    15,
  ],
  ['<speak><say-as interpret-as="cardinal">-12.5</say-as></speak>', [{ text: '-12.5' }], 5],
  ['<speak><![CDATA[a < b]]></speak>', [{ text: 'a < b' }], 5],
  ['<speak>😀</speak>', [{ text: '😀' }], 1],
];

const REFUSED: [string, RegExp][] = [
  ['<speak><audio src="http://localhost/a.wav"/></speak>', /element audio/],
  ['<speak><voice name="x">Hi</voice></speak>', /element voice/],
  ['<speak><phoneme ph="x">Hi</phoneme></speak>', /element phoneme/],
  ['<speak><emphasis>Hi</emphasis></speak>', /element emphasis/],
  ['<speak><constructor/></speak>', /element constructor/],
  ['<SPEAK>Hi</SPEAK>', /element SPEAK/],
  ['<speak><speak>Hi</speak></speak>', /speak in speak/],
  ['<speak><s><p>Hi</p></s></speak>', /p in s/],
  ['<speak><sub alias="x"><break/></sub></speak>', /break in sub/],
  ['<speak><sub>x</sub></speak>', /sub without alias/],
  ['<speak><prosody pitch="high">Hi</prosody></speak>', /prosody with pitch/],
  ['<speak><prosody>Hi</prosody></speak>', /prosody without rate/],
  ['<speak><prosody rate="toString">Hi</prosody></speak>', /the rate toString/],
  ['<speak><prosody rate="0.1">Hi</prosody></speak>', /a rate of 0\.10/],
  ['<speak><prosody rate="fast"><prosody rate="x-fast">Hi</prosody></prosody></speak>', /a rate of 1\.80/],
  ['<speak><say-as interpret-as="date">1.1.2026</say-as></speak>', /say-as date/],
  ['<speak><say-as interpret-as="valueOf">1</say-as></speak>', /say-as valueOf/],
  ['<speak><say-as interpret-as="digits">ten</say-as></speak>', /ten as digits/],
  ['<speak>Wait <break time="3600s"/> here.</speak>', /more than 10 s/],
  [`<speak>Wait ${'<break time="9s"/>'.repeat(4)} here.</speak>`, /more than 30 s together/],
  ['<speak>Wait <break time="1h"/></speak>', /break with 1h/],
  ['<speak>Wait <break time="1s" strength="__proto__"/></speak>', /break with/],
  [`<speak>${'<s>x</s>'.repeat(300)}</speak>`, /more than 200 parts/],
  [`<speak>${'<prosody rate="1">'.repeat(30)}x${'</prosody>'.repeat(30)}</speak>`, /16 deep/],
  ['<speak><?php echo 1 ?>Hi</speak>', /processing instruction/],
];

const BROKEN = [
  '<speak>Hi',
  '<speak>Hi</p></speak>',
  '<speak>Hi</speak> and more',
  '<speak>&nbsp;</speak>',
  '<speak>a < b</speak>',
  '<speak a=b>Hi</speak>',
  '<speak>\u0000</speak>',
  '<speak> \n </speak>',
  '<speak/>',
];

/** Refused before anything of it grows: a billion times the same. */
const BOMB = `<?xml version="1.0"?><!DOCTYPE speak [<!ENTITY a "lol">${'<!ENTITY b "&a;&a;&a;">'.repeat(9)}]><speak>&b;</speak>`;

const failureOf = (text: string) => {
  try {
    readSsml(text);
    return undefined;
  } catch (error) {
    return error as SpeechFailure;
  }
};

describe('SSML', () => {
  it.each(READ)('%s', (text, parts, characters) => {
    expect(isSsml(text)).toBe(true);
    expect(readSsml(text)).toEqual({ parts, characters });
  });

  it.each(REFUSED)('refuses %s by name', (text, what) => {
    expect(failureOf(text)).toMatchObject({
      code: 'UNSUPPORTED_SSML',
      status: 422,
      message: expect.stringMatching(what),
    });
  });

  it.each(BROKEN)('refuses %s as no XML', (text) => {
    expect(failureOf(text)).toMatchObject({ code: 'INVALID_BODY', status: 400 });
  });

  it('takes no document type, and of 64 KiB of anything no time', () => {
    expect(isSsml(BOMB)).toBe(true);
    expect(failureOf(BOMB)).toBeInstanceOf(SpeechFailure);
    const began = performance.now();
    for (const piece of ['<speak>', '<break/>', '<![CDATA[', '&amp;', '<a b="', '<!--', '<p/>'])
      failureOf(`<speak>${piece.repeat(Math.floor(65_536 / piece.length))}`);
    expectTime('SSML of 64 KiB, seven times', performance.now() - began, 2000);
  });

  it.each(['Hello', '<p>Hello</p>', '<speaker>', 'say <speak>'])('is not what %s is', (text) => {
    expect(isSsml(text)).toBe(false);
  });
});
