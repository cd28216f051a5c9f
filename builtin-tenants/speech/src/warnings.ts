/**
 * What an engine could not do is said in `metadata.warnings`, in Deepgram's shape.
 */

export interface Warning {
  parameter: string;
  type: string;
  message: string;
}

/** @param text such as `model=nova-3: transcribed by pocketsphinx` or `utterances: not supported` */
export function warning(text: string): Warning {
  const [, parameter = '', message = text] = /^([a-z_]+)(?:=[^:]*)?: (.*)$/s.exec(text) ?? [];
  const value = /^[a-z_]+=([^:]*):/.exec(text)?.[1];
  return {
    parameter,
    type: 'unsupported_option',
    message: value === undefined ? message : `${parameter}=${value}: ${message}`,
  };
}

export function unknownOptions(names: string[]): string[] {
  return names.map((name) => `${name.replace(/[^a-z_]/gi, '').toLowerCase() || 'option'}: unknown, ignored`);
}
