/**
 * The stock payment clients in the versions that this project is tested with. Without versions npm takes the newest
 * viem, which signs since 2.57 for a later Tempo than the local network is (anvil knows T4).
 */
const MPPX = 'mppx@0.11.0';
const VIEM = 'viem@2.56.9';

/** The mppx command, also in a folder without packages. */
export const MPPX_COMMAND = `npx -y -p ${MPPX} -p ${VIEM} mppx`;

/** What a program needs to pay with mppx. */
export const MPPX_PACKAGES = `${MPPX} ${VIEM}`;

/** What a program needs to pay with x402. */
export const X402_PACKAGES = `@x402/fetch@2.27.0 @x402/evm@2.27.0 ${VIEM}`;
