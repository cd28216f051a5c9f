/** Exchanges of the front door: with heads that were read as a caller's. */
import type { Exchange as AnyExchange, ExchangeHandler as AnyHandler } from '../shared/exchange.ts';
import type { RequestHead } from './http1/head.ts';

export type Exchange = AnyExchange<RequestHead>;
export type ExchangeHandler = AnyHandler<RequestHead>;
