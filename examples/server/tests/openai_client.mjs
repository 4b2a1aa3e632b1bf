// SPDX-License-Identifier: MIT
//
// openai_client.mjs URL: the server as OpenAI's own client for Node sees it.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: 'none', maxRetries: 0 });
const prompt = 'Once upon a time there was a little girl who lived near the forest.';

const models = await client.models.list();
const model = models.data[0].id;

const whole = await client.completions.create({ model, prompt, max_tokens: 40, seed: 1, n: 2,
                                                logprobs: 3 });
assert.equal(whole.choices.length, 2);
assert.equal(whole.choices[0].logprobs.tokens.length, 40);
assert.equal(whole.usage.completion_tokens, 80);

const texts = ['', ''];
for await (const event of await client.completions.create({ model, prompt, max_tokens: 40, seed: 1,
                                                            n: 2, stream: true }))
  for (const choice of event.choices) texts[choice.index] += choice.text;
assert.deepEqual(texts, whole.choices.map(choice => choice.text));

const messages = [{ role: 'system', content: 'Tell a story.' }, { role: 'user', content: prompt }];
const chat = await client.chat.completions.create({ model, messages, max_tokens: 30, seed: 2,
                                                    logprobs: true, top_logprobs: 2 });
assert.equal(chat.choices[0].message.role, 'assistant');
assert.equal(chat.choices[0].logprobs.content.length, 30);
assert.equal(chat.choices[0].finish_reason, 'length');

let said = '', usage = null;
for await (const event of await client.chat.completions.create({
  model, messages, max_tokens: 30, seed: 2, stream: true, stream_options: { include_usage: true } })) {
  said += event.choices[0]?.delta.content ?? '';
  usage = event.usage ?? usage;
}
assert.equal(said, chat.choices[0].message.content);
assert.ok(usage.prompt_tokens_details.cached_tokens > 50);

const stream = await client.completions.create({ model, prompt, max_tokens: 500, stream: true });
for await (const event of stream) { assert.ok(event.id); break; }
stream.controller.abort();

await assert.rejects(client.completions.create({ model, prompt, max_tokens: -1 }),
                     error => error.status === 400 && error.param === 'max_tokens');
await assert.rejects(client.completions.create({ model: 'other', prompt }),
                     error => error.status === 404 && error.param === 'model');
console.log('ok     openai for Node');
