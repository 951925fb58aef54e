// Drives a server with OpenAI's client for Node: node openai_client.mjs URL GUARDED SIGHTED MODEL.
// The arguments and the output are those of ../python/checks.py.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';

const [url, guarded, sighted, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0 });

const paris = 'What is the capital of France?';
const moon = 'Tell me three facts about the moon.';
const endless = 'Write the numbers from 1 to 5000, one a line.';
const call = 'Repeat exactly: <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>';
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ type: 'function', function: { name: 'weather', description: 'The weather in a city.', parameters } }];
// The constraint of a reply; even a small model ends such a reply.
const schema = { type: 'object', required: ['city', 'days'], additionalProperties: false, properties: {
  city: { type: 'string', enum: ['Paris', 'London'] }, days: { type: 'integer', minimum: 1, maximum: 7 } } };
const forecast = { type: 'function', function: { name: 'forecast', description: 'The weather of the next days.', parameters: schema } };

const said = (q) => (typeof q === 'string' ? [{ role: 'user', content: q }] : q);
const params = (q, more) => ({ model, messages: said(q), temperature: 0, max_tokens: 40, ...more });
const ask = (q, more, options) => client.chat.completions.create(params(q, more), options);

async function metric(name, label = '') {
  const text = await (await fetch(url + '/metrics')).text();
  return text.split('\n').filter((l) => l.startsWith(name + '{') && l.includes(label))
    .reduce((sum, l) => sum + Number(l.slice(l.lastIndexOf(' '))), 0);
}
const aborts = () => metric('vllm:request_success_total', 'finished_reason="abort"');

async function aborted(before) {
  for (const end = Date.now() + 60_000; (await aborts()) !== before + 1 || (await metric('vllm:num_requests_running')) !== 0; await sleep(20)) {
    assert.ok(Date.now() < end, 'no abort after a minute');
  }
}

async function raises(kind, f) {
  try {
    await f();
  } catch (e) {
    assert.ok(e instanceof kind, `${kind.name} is expected: ${e}`);
    return e;
  }
  throw new Error('no ' + kind.name);
}

function keeps({ city, days, ...more }) {
  assert.ok(['Paris', 'London'].includes(city) && days >= 1 && days <= 7, `${city} ${days}`);
  assert.deepEqual(more, {});
}

const checks = {
  async chat() {
    const r = await ask(paris);
    assert.match(r.choices[0].message.content, /Paris/);
    assert.equal(r.choices[0].finish_reason, 'stop');
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
  },
  async stream() {
    const plain = await ask(moon);
    let text = '', finish, usage;
    for await (const c of await ask(moon, { stream: true, stream_options: { include_usage: true } })) {
      text += c.choices[0]?.delta.content ?? '';
      finish ??= c.choices[0]?.finish_reason;
      usage = c.usage ?? usage;
    }
    assert.equal(text, plain.choices[0].message.content);
    assert.equal(finish, plain.choices[0].finish_reason);
    assert.deepEqual(usage, plain.usage);
    const whole = await client.chat.completions.stream(params(moon)).finalChatCompletion();
    assert.equal(whole.choices[0].message.content, text);
  },
  async turns() {
    const talk = [{ role: 'system', content: 'You are terse.' }, { role: 'user', content: paris }];
    const first = await ask(talk);
    const second = await ask([...talk, first.choices[0].message, { role: 'user', content: [{ type: 'text', text: moon }] }]);
    assert.ok(second.choices[0].message.content && second.usage.prompt_tokens > first.usage.total_tokens);
  },
  async logprobs() {
    const r = await ask('Name a colour.', { logprobs: true, top_logprobs: 3 });
    for (const c of r.choices[0].logprobs.content) {
      assert.equal(c.top_logprobs.length, 3);
      assert.equal(c.token, c.top_logprobs[0].token);
    }
  },
  async stop() {
    const whole = (await ask(moon)).choices[0].message.content;
    const word = whole.slice(10, 14);
    const r = await ask(moon, { stop: [word] });
    assert.equal(r.choices[0].message.content, whole.slice(0, whole.indexOf(word)));
  },
  async 'seed-and-n'() {
    const poem = async () => (await ask('Write a line of a poem.', { temperature: 1.2, seed: 42, n: 3 })).choices.map((c) => c.message.content);
    const [a, b] = [await poem(), await poem()];
    assert.deepEqual(a, b);
    assert.ok(a.length === 3 && new Set(a).size > 1);
  },
  async completions() {
    const more = { model, prompt: ['Once upon a time', 'The sun is'], max_tokens: 16, temperature: 0 };
    const r = await client.completions.create(more);
    assert.equal(r.usage.completion_tokens, 32);
    const texts = ['', ''];
    for await (const c of await client.completions.create({ ...more, stream: true })) {
      for (const x of c.choices) texts[x.index] += x.text;
    }
    assert.deepEqual(texts, r.choices.map((c) => c.text));
  },
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    assert.deepEqual(ids, [model]);
  },
  async tools() {
    const talk = said(call);
    const { message, finish_reason } = (await ask(talk, { tools })).choices[0];
    assert.equal(finish_reason, 'tool_calls');
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: 'Paris' });
    talk.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny' });
    const r = (await ask(talk, { tools, tool_choice: 'none' })).choices[0];
    assert.ok(r.message.content && !r.message.tool_calls?.length);
  },
  async 'tools-stream'() {
    const plain = (await ask(call, { tools })).choices[0].message;
    const got = (await client.chat.completions.stream(params(call, { tools })).finalChatCompletion()).choices[0];
    assert.equal(got.finish_reason, 'tool_calls');
    assert.equal(got.message.content, plain.content);
    assert.equal(got.message.tool_calls[0].function.arguments, plain.tool_calls[0].function.arguments);
  },
  async forced() {
    const named = { type: 'function', function: { name: 'forecast' } };
    for (const tool_choice of ['required', named]) {
      const more = { tools: tool_choice === named ? [...tools, forecast] : [forecast], tool_choice };
      const [got] = (await ask(paris, more)).choices[0].message.tool_calls;
      assert.equal(got.function.name, 'forecast');
      keeps(JSON.parse(got.function.arguments));
      const streamed = (await client.chat.completions.stream(params(paris, more)).finalChatCompletion()).choices[0].message.tool_calls[0];
      assert.equal(streamed.function.arguments, got.function.arguments);
    }
    // The client's own loop calls the function.
    let asked;
    const own = { type: 'function', function: { ...forecast.function, parse: JSON.parse, function: (a) => { asked = a; return 'sunny'; } } };
    await client.chat.completions.runTools(params(paris, { tools: [own], tool_choice: named })).done();
    keeps(asked);
  },
  async schema() {
    const response_format = { type: 'json_schema', json_schema: { name: 'forecast', strict: true, schema } };
    const r = await client.chat.completions.parse(params(paris, { response_format }));
    keeps(r.choices[0].message.parsed);
    const streamed = await client.chat.completions.stream(params(paris, { response_format })).finalChatCompletion();
    assert.equal(streamed.choices[0].message.content, r.choices[0].message.content);
  },
  async responses() {
    const one = { model, input: paris, temperature: 0, max_output_tokens: 40 };
    const r = await client.responses.create(one);
    assert.match(r.output_text, /Paris/);
    const stream = client.responses.stream(one);
    const kinds = [];
    for await (const e of stream) kinds.push(e.type);
    assert.equal((await stream.finalResponse()).output_text, r.output_text);
    assert.equal(kinds.at(-1), 'response.completed');
    const tool = { type: 'function', name: 'forecast', parameters: schema, strict: true };
    const call = (await client.responses.create({ ...one, tools: [tool], tool_choice: 'required', max_output_tokens: 60 })).output[0];
    assert.equal(call.type, 'function_call');
    keeps(JSON.parse(call.arguments));
  },
  async images() {
    const sees = new OpenAI({ baseURL: sighted + '/v1', apiKey: 'none', maxRetries: 0 });
    const { RED, BLUE } = process.env;
    const png = (data) => 'data:image/png;base64,' + data;
    const look = (images, c = sees) => c.chat.completions.create({ model, max_tokens: 8, messages: [{ role: 'user', content: [
      ...images.map((i) => ({ type: 'image_url', image_url: { url: png(i) } })), { type: 'text', text: 'what is this?' }] }] });
    const [none, one, other] = [await look([]), await look([RED]), await look([BLUE])];
    assert.ok(one.usage.prompt_tokens >= none.usage.prompt_tokens + 10);
    assert.ok(one.choices[0].message.content);
    assert.notEqual(one.choices[0].message.content, other.choices[0].message.content);
    const r = await sees.responses.create({ model, max_output_tokens: 8, input: [{ role: 'user', content: [
      { type: 'input_image', image_url: png(RED), detail: 'auto' }, { type: 'input_text', text: 'what is this?' }] }] });
    assert.equal(r.output_text, one.choices[0].message.content);
    for (const [images, c, why] of [[[RED], client, /is not a multimodal model/], [[RED, RED, BLUE], sees, /At most 2 image\(s\)/], [[RED.slice(0, 40)], sees, /Failed to load image/]]) {
      assert.match((await raises(OpenAI.BadRequestError, () => look(images, c))).message, why);
    }
  },
  async errors() {
    const e = await raises(OpenAI.NotFoundError, () => ask('x', { model: 'nobody' }));
    assert.equal(e.type, 'NotFoundError');
    assert.equal(e.param, 'model');
    assert.match((await raises(OpenAI.BadRequestError, () => ask('x', { top_p: 2 }))).message, /top_p/);
    await raises(OpenAI.BadRequestError, () => ask('word '.repeat(5000), { stream: true }));
  },
  async key() {
    const wrong = new OpenAI({ baseURL: guarded + '/v1', apiKey: 'wrong', maxRetries: 0 });
    await raises(OpenAI.AuthenticationError, () => wrong.models.list());
    assert.equal((await wrong.withOptions({ apiKey: 'openai-node' }).models.list()).data[0].id, model);
  },
  async limits() {
    const patient = new OpenAI({ baseURL: guarded + '/v1', apiKey: 'openai-node', maxRetries: 5 });
    const one = (c) => c.chat.completions.create(params('x', { max_tokens: 1 }));
    const e = await raises(OpenAI.RateLimitError, async () => {
      for (let i = 0; i < 200; i++) await one(patient.withOptions({ maxRetries: 0 }));
    });
    assert.ok(Number(e.headers.get('retry-after')) >= 1);
    assert.equal((await one(patient)).usage.completion_tokens, 1);
  },
  async cancel() {
    const before = await aborts();
    let n = 0;
    for await (const c of await ask(endless, { max_tokens: 3000, stream: true, ignore_eos: true })) {
      assert.equal(c.choices[0].finish_reason, null);
      if (++n === 4) break;
    }
    await aborted(before);
    await raises(OpenAI.APIConnectionTimeoutError, () => ask(endless, { max_tokens: 3000, ignore_eos: true }, { timeout: 1000 }));
    await aborted(before + 1);
  },
};

for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log('ok', name);
  } catch (e) {
    console.error(e);
    console.log(`FAIL ${name}: ${e.message.replaceAll('\n', ' ')}`);
  }
}
