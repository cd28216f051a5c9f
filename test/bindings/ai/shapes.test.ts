import { describe, expect, it } from 'vitest';
import { AiFault, modelAnswer, modelCall, streamEvent } from '../../../host/bindings/ai/shapes.ts';

function fault(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(AiFault);
    return (error as Error).message;
  }
  throw new Error('It was taken.');
}

describe('inputs', () => {
  it('of text generation', () => {
    expect(modelCall('m', { prompt: 'hi', max_tokens: 5, temperature: 0.5 })).toEqual({
      task: 'text',
      path: '/chat/completions',
      body: { model: 'm', messages: [{ role: 'user', content: 'hi' }], max_tokens: 5, temperature: 0.5 },
      stream: false,
    });
    const messages = [{ role: 'system', content: 'be brief' }];
    expect(modelCall('m', { messages, stream: true })).toMatchObject({
      body: { messages, stream: true, stream_options: { include_usage: true } },
      stream: true,
    });
    const tools = [{ name: 'add', parameters: {} }];
    expect(modelCall('m', { messages, tools }).body.tools).toEqual([{ type: 'function', function: tools[0] }]);
  });

  it('of embeddings', () => {
    const call = { task: 'embeddings', path: '/embeddings', body: { model: 'm', input: ['a'] }, stream: false };
    expect(modelCall('m', { text: 'a' })).toEqual(call);
    expect(modelCall('m', { text: ['a'] })).toEqual(call);
  });

  it.each([
    [null, /not an object/],
    [{}, /text generation/],
    [{ prompt: 'a', messages: [] }, /leave out one/],
    [{ messages: [] }, /messages/],
    [{ messages: [{ role: 'user' }] }, /messages/],
    [{ prompt: 1 }, /prompt/],
    [{ prompt: 'a', stream: 'yes' }, /stream/],
    [{ prompt: 'a', max_tokens: '5' }, /max_tokens/],
    [{ prompt: 'a', lora: 'x' }, /does not take lora/],
    [{ text: 'a', prompt: 'b' }, /does not take prompt/],
    [{ text: [] }, /text/],
    [{ text: [1] }, /text/],
    [{ text: Array.from({ length: 101 }, () => 'a') }, /101 texts/],
  ])('%j are refused', (inputs, why) => {
    expect(fault(() => modelCall('m', inputs))).toMatch(why);
  });
});

describe('answers', () => {
  const text = modelCall('m', { prompt: 'a' });
  const two = modelCall('m', { text: ['a', 'b'] });

  it('of text generation', () => {
    const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };
    expect(modelAnswer(text, { choices: [{ message: { content: 'hello' } }], usage })).toEqual({
      response: 'hello',
      usage,
    });
    const call = { function: { name: 'add', arguments: '{"a":1}' } };
    expect(modelAnswer(text, { choices: [{ message: { content: null, tool_calls: [call] } }] })).toEqual({
      response: null,
      tool_calls: [{ name: 'add', arguments: { a: 1 } }],
    });
  });

  it('of embeddings, in the order of the texts', () => {
    const data = [
      { index: 1, embedding: [3, 4] },
      { index: 0, embedding: [1, 2] },
    ];
    expect(modelAnswer(two, { data })).toEqual({
      shape: [2, 2],
      data: [
        [1, 2],
        [3, 4],
      ],
    });
  });

  it.each([null, [], { choices: [] }, { choices: [{}] }, { choices: [{ message: { content: 5 } }] }, { data: [] }])(
    '%j are refused',
    (answer) => {
      expect(fault(() => modelAnswer(text, answer))).toMatch(/another form/);
      expect(fault(() => modelAnswer(two, answer))).toMatch(/another form/);
    },
  );

  it.each([
    [
      [
        { index: 0, embedding: [1] },
        { index: 0, embedding: [1] },
      ],
    ],
    [
      [
        { index: 0, embedding: [1] },
        { index: 7, embedding: [1] },
      ],
    ],
    [[{ embedding: ['a'] }, { embedding: [1] }]],
  ])('embeddings such as %j are refused', (data) => {
    expect(fault(() => modelAnswer(two, { data }))).toMatch(/another form/);
  });
});

describe('events of a stream', () => {
  const event = (value: object) => streamEvent(JSON.stringify(value));

  it('become those of Workers AI', () => {
    expect(event({ choices: [{ delta: { content: 'a"b' } }] })).toEqual({ event: 'data: {"response":"a\\"b"}\n\n' });
    expect(event({ choices: [{ delta: { role: 'assistant', content: '' } }] })).toEqual({});
    expect(event({ choices: [], usage: { total_tokens: 3 } })).toEqual({
      event: 'data: {"response":"","usage":{"total_tokens":3}}\n\n',
    });
    expect(streamEvent('[DONE]')).toEqual({ done: true });
  });

  it('that are broken end it', () => {
    expect(fault(() => streamEvent('{'))).toMatch(/not JSON/);
    expect(fault(() => streamEvent('1'))).toMatch(/another form/);
    expect(fault(() => event({ error: { message: 'sk-secret' } }))).not.toMatch(/sk-secret/);
  });
});
