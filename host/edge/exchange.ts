/** Exchanges of the front door: with heads that were read as a caller's. */
import type { Exchange as AnyExchange, ExchangeHandler as AnyHandler } from '../http/message/exchange.ts';
import type { RequestHead } from '../http/message/head.ts';

export type Exchange = AnyExchange<RequestHead>;
export type ExchangeHandler = AnyHandler<RequestHead>;
