/** The x402 `PaymentRequirements` of an offer, as they go over the wire. */
export interface X402Requirements {
  scheme: 'exact' | 'upto' | 'batch-settlement';
  network: `${string}:${string}`;
  asset: string;
  amount: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra: Record<string, unknown>;
}
