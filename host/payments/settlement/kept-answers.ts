/** What a payment was answered with: what of it stands with the payment, and what is in a file. */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { Again } from './again.ts';
import type { Answers, WholeAnswer } from './answers.ts';

export interface StoredAnswer {
  status: number;
  headers: [string, string][];
  /** Undefined: it streams, or it is too large to keep. */
  body: Buffer | undefined;
}

export class KeptAnswers {
  readonly #answers: Answers;

  constructor(answers: Answers) {
    this.#answers = answers;
  }

  /** What a payment was answered with; undefined where it was not kept, or where it is not known which path it was of. */
  async find({ row }: Again): Promise<WholeAnswer | undefined> {
    return row.place === null && row.kind !== 'operation'
      ? undefined
      : this.#kept(row, (kept) => this.#answers.find(kept));
  }

  /** Whether a payment whose answer nobody has had yet can be answered all the same, by this node. */
  async has(row: PaymentRow): Promise<boolean> {
    return row.charged !== null && (await this.#kept(row, (kept) => this.#answers.read(kept))) !== undefined;
  }

  async #kept(
    row: PaymentRow,
    read: (row: PaymentRow) => Promise<WholeAnswer | undefined>,
  ): Promise<WholeAnswer | undefined> {
    const { answerStatus: status, answerHeaders, answerBody, answerComplete } = row;
    if (status === null || !(answerComplete || answerBody !== null)) return undefined;
    if (answerHeaders !== null) return { status, headers: answerHeaders, body: answerBody ?? Buffer.alloc(0) };
    return read(row);
  }

  /**
   * Keeps an answer, before anything says that it is kept. The host's own are few and short and stay with the payment;
   * what handlers write goes into files.
   */
  async keep(row: PaymentRow, answer: StoredAnswer | undefined): Promise<Partial<PaymentRow>> {
    if (!answer) return {};
    const { status, headers, body } = answer;
    if (row.kind === 'operation') return operationColumns(answer);
    if (body !== undefined) await this.#answers.keep(row, { status, headers, body });
    return { answerStatus: status, answerComplete: body !== undefined };
  }
}

function operationColumns({ status, headers, body }: StoredAnswer): Partial<PaymentRow> {
  return {
    answerStatus: status,
    answerHeaders: headers,
    answerBody: body ?? null,
    answerComplete: body !== undefined,
  };
}
