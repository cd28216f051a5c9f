/**
 * What keeps payments on Solana from working, as far as the chain tells: each with the next step. For the doctor and for
 * the log of a start; none of it keeps a host from starting, because a node may be away and a wallet may be filled later.
 */
import { type Address, getAddressEncoder, getBase58Decoder, getProgramDerivedAddress } from '@solana/kit';
import { LEAST_SETTLEMENTS, MOST_LAMPORTS, settlementsLeft } from '../methods/x402/solana/cost.ts';
import { isNamed, type SolanaPlace } from './solana.ts';

export interface Trouble {
  /** Fault: no payment works. Warning: some do not, or will not for long. */
  state: 'fault' | 'warning';
  detail: string;
  fix: string;
}

const DECIMALS = 6;

const TOKEN_PROGRAMS = ['TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA', 'TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb'];
const TOKEN_ACCOUNTS = 'ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL' as Address;
/** Layouts of the token programs: where a mint has its decimals, and an account its owner and its state. */
const MINT = { bytes: 82, decimals: 44 };
const ACCOUNT = { bytes: 165, owner: 32, state: 108, frozen: 2 };

/** @param feePayer the host's own, where it pays the fees and has one */
export async function solanaTroubles(place: SolanaPlace, feePayer: string | undefined): Promise<Trouble[]> {
  const silent: Trouble = {
    state: 'fault',
    detail: `${place.name} does not answer`,
    fix: 'check payments.solana.rpcUrl; until it answers, nothing is paid on Solana',
  };
  return look(place, feePayer).catch(() => [silent]);
}

async function look(place: SolanaPlace, feePayer: string | undefined): Promise<Trouble[]> {
  const { name, token, ask } = place;
  if (!(await isNamed(place)))
    return [
      {
        state: 'fault',
        detail: `payments.solana.rpcUrl is a node of another network than ${name}`,
        fix: `name a node of ${name}, or the network of this one in payments.solana.network`,
      },
    ];
  const [mint, recipients, fees] = await Promise.all([
    accountAt(ask, token),
    recipientTroubles(place),
    feePayer === undefined ? [] : feeTroubles(place, feePayer),
  ]);
  const decimals = isMint(mint) ? mint.data[MINT.decimals] : undefined;
  const mints: Trouble[] =
    decimals === DECIMALS
      ? []
      : [
          {
            state: 'fault',
            detail:
              decimals === undefined
                ? `${name} has no token ${token}`
                : `the token ${token} has ${decimals} decimals, not ${DECIMALS}`,
            fix: `name a node in payments.solana.rpcUrl that has the USDC of ${name}`,
          },
        ];
  return [...mints, ...recipients, ...fees];
}

async function recipientTroubles({ name, token, recipient, ask }: SolanaPlace): Promise<Trouble[]> {
  const wallet = await accountAt(ask, recipient);
  if (wallet && TOKEN_PROGRAMS.includes(wallet.owner))
    return [
      {
        state: 'fault',
        detail: `payments.solana.recipient ${recipient} is an account for tokens, not a wallet`,
        fix: isTokenAccount(wallet) ? `set it to the wallet that owns it: ${ownerOf(wallet)}` : 'set it to your wallet',
      },
    ];
  const accounts = await Promise.all(
    TOKEN_PROGRAMS.map(async (program) => accountAt(ask, await tokenAccountOf(recipient, token, program))),
  );
  const account = accounts.find((one) => one !== undefined);
  if (account?.data[ACCOUNT.state] === ACCOUNT.frozen)
    return [
      {
        state: 'warning',
        detail: `the USDC account of payments.solana.recipient ${recipient} is frozen`,
        fix: 'set payments.solana.recipient to another wallet',
      },
    ];
  if (account) return [];
  return [
    {
      state: 'warning',
      detail: `payments.solana.recipient ${recipient} has no account for USDC on ${name}`,
      fix: 'send it a little USDC: until then, routes that pay it refuse payments on Solana',
    },
  ];
}

async function feeTroubles({ name, ask }: SolanaPlace, feePayer: string): Promise<Trouble[]> {
  const [{ value: lamports }, rent] = await Promise.all([
    ask<{ value: number }>('getBalance', [feePayer]),
    ask<number>('getMinimumBalanceForRentExemption', [0]),
  ]);
  const left = settlementsLeft(lamports, rent);
  if (left >= LEAST_SETTLEMENTS) return [];
  const enough = (rent + LEAST_SETTLEMENTS * MOST_LAMPORTS - lamports) / 1e9;
  return [
    {
      state: left === 0 ? 'fault' : 'warning',
      detail: `${feePayer}, which pays the fees on ${name}, has ${lamports / 1e9} SOL: enough for ${left} payments`,
      fix: `send it at least ${enough} SOL`,
    },
  ];
}

interface Account {
  owner: string;
  data: Buffer;
}

async function accountAt(ask: SolanaPlace['ask'], address: string): Promise<Account | undefined> {
  type Found = { value: { owner: string; data: [string, string] } | null };
  const { value } = await ask<Found>('getAccountInfo', [address, { encoding: 'base64' }]);
  return value ? { owner: value.owner, data: Buffer.from(value.data[0], 'base64') } : undefined;
}

function isMint(account: Account | undefined): account is Account {
  return account !== undefined && TOKEN_PROGRAMS.includes(account.owner) && account.data.length >= MINT.bytes;
}

function isTokenAccount({ data }: Account): boolean {
  return data.length >= ACCOUNT.bytes;
}

function ownerOf({ data }: Account): string {
  return getBase58Decoder().decode(data.subarray(ACCOUNT.owner, ACCOUNT.owner + 32));
}

async function tokenAccountOf(owner: string, mint: string, program: string): Promise<string> {
  const seeds = [owner, program, mint].map((each) => getAddressEncoder().encode(each as Address));
  const [found] = await getProgramDerivedAddress({ programAddress: TOKEN_ACCOUNTS, seeds });
  return found;
}
