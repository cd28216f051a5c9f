/** A payer whose stock mppx client pays a charge with other fields in its transaction than the client would sign. */
import { Credential } from 'mppx';
import { Mppx, tempo } from 'mppx/client';
import { SignatureEnvelope, TxEnvelopeTempo } from 'ox/tempo';
import type { Hex } from 'viem';
import type { Network } from '../../../host/payments/network/index.ts';
import { mppOf } from './payments-rig.ts';

export type Fields = Partial<TxEnvelopeTempo.TxEnvelopeTempo>;
export interface Signer {
  address: Hex;
  sign(parameters: { hash: Hex }): Promise<Hex>;
}

export async function payWith(network: Network, url: string, account: Signer, fields: Fields): Promise<Response> {
  const sender: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const text = request.headers.get('authorization');
    if (text === null) return fetch(request);
    const credential = Credential.deserialize<{ signature: TxEnvelopeTempo.Serialized }>(text);
    const { signature: _, ...envelope } = TxEnvelopeTempo.deserialize(credential.payload.signature);
    const unsigned = TxEnvelopeTempo.from({ ...envelope, ...fields } as never);
    const signed = await account.sign({ hash: TxEnvelopeTempo.getSignPayload(unsigned) });
    const signature = TxEnvelopeTempo.serialize(unsigned, { signature: SignatureEnvelope.from(signed) as never });
    const authorization = Credential.serialize({ ...credential, payload: { ...credential.payload, signature } });
    return fetch(request.url, { headers: { authorization } });
  };
  const { fetch: paying } = Mppx.create({
    polyfill: false,
    fetch: sender,
    methods: [tempo.charge({ account: account as never, getClient: () => mppOf(network).getClient() as never })],
  });
  return paying(url);
}
