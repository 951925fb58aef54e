// The chat.
const $ = id => document.getElementById(id);
const add = (to, tag, cls, text) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  to.append(e);
  return e;
};
const knobs = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'];
const kept = [...knobs, 'key', 'system', 'tools'];
let messages = [];
let running = null; // the AbortController of the current reply

const headers = () => {
  const h = {'Content-Type': 'application/json'};
  if ($('key').value) h.Authorization = 'Bearer ' + $('key').value;
  return h;
};

for (const id of kept) {
  $(id).value = sessionStorage.getItem('vapp.' + id) || '';
  $(id).addEventListener('change', () => sessionStorage.setItem('vapp.' + id, $(id).value));
}

// refusal returns the message of an error reply.
async function refusal(r) {
  const text = await r.text();
  let say = text || r.statusText;
  try {
    const e = JSON.parse(text).error;
    say = typeof e === 'string' ? e : e.message;
  } catch { /* not JSON: use the text */ }
  const after = r.headers.get('Retry-After');
  return r.status + ': ' + say + (after && !say.includes('second') ? ' Try again in ' + after + ' s.' : '');
}

function request() {
  const body = {model: $('model').value, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}};
  for (const id of knobs) if ($(id).value !== '') body[id] = Number($(id).value);
  const system = $('system').value.trim();
  body.messages = system ? [{role: 'system', content: system}, ...messages] : messages;
  if ($('tools').value.trim()) {
    try { body.tools = JSON.parse($('tools').value); } catch (e) { throw new Error('The tools are not valid JSON: ' + e.message); }
  }
  return body;
}

// write shows text with fenced code as blocks, without interpreting markup.
function write(to, text) {
  to.replaceChildren();
  text.split(/^```.*$/m).forEach((part, i) => {
    if (i % 2) add(to, 'pre', '', part.replace(/^\n|\n$/g, ''));
    else if (part.trim()) add(to, 'div', 'text', part.trim());
  });
}

// records yields the records of a stream of server-sent events.
async function* records(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split('\n');
    rest = lines.pop();
    for (const l of lines) if (l.startsWith('data: ') && l !== 'data: [DONE]') yield JSON.parse(l.slice(6));
  }
}

// bubble adds the elements of a new reply.
function bubble() {
  const root = add($('log'), 'article', 'message assistant');
  const think = add(root, 'details', 'reasoning');
  think.hidden = true;
  const title = add(think, 'summary', '', 'Thinking…');
  const thought = add(think, 'div', 'text');
  const text = add(root, 'div', 'content');
  const calls = add(root, 'div', 'calls');
  const facts = add(root, 'div', 'facts');
  return {root, think, title, thought, text, calls, facts};
}

const atEnd = () => $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 60;

function grow(reply, delta) {
  reply.reasoning += delta.reasoning || '';
  reply.content += delta.content || '';
  for (const c of delta.tool_calls || []) {
    const k = reply.calls[c.index] ||= {id: c.id, type: 'function', function: {name: '', arguments: ''}};
    k.function.name += c.function.name || '';
    k.function.arguments += c.function.arguments || '';
  }
}

function show(b, reply) {
  const stay = atEnd();
  b.think.hidden = !reply.reasoning;
  b.thought.textContent = reply.reasoning;
  if (reply.content || reply.calls.length || reply.finish) b.title.textContent = 'Thought about it';
  write(b.text, reply.content);
  b.calls.replaceChildren();
  for (const c of reply.calls) {
    const e = add(b.calls, 'div', 'call');
    add(e, 'b', '', c.function.name);
    let args = c.function.arguments;
    try { args = JSON.stringify(JSON.parse(args), null, 2); } catch { /* incomplete */ }
    add(e, 'pre', '', args);
  }
  const n = reply.usage && reply.usage.completion_tokens;
  if (n) {
    const s = (reply.last - reply.first) / 1000;
    b.facts.textContent = [
      n + (n === 1 ? ' token' : ' tokens'), s > 0 && n > 1 ? ((n - 1) / s).toFixed(1) + ' tokens/s' : '',
      'first after ' + ((reply.first - reply.start) / 1000).toFixed(2) + ' s', reply.usage.prompt_tokens + ' in the prompt', reply.finish,
    ].filter(Boolean).join(' · ');
  }
  if (stay) $('log').scrollTop = $('log').scrollHeight;
}

async function read(reply, b) {
  const r = await fetch('v1/chat/completions', {method: 'POST', headers: headers(), body: JSON.stringify(request()), signal: running.signal});
  if (!r.ok) {
    if (r.status === 401) settings(true, 'key');
    throw new Error(await refusal(r));
  }
  let due = false;
  for await (const record of records(r.body)) {
    if (record.error) throw new Error(record.error.message);
    const choice = record.choices[0];
    if (choice) {
      if (choice.delta.content || choice.delta.reasoning || choice.delta.tool_calls) {
        reply.last = performance.now();
        reply.first ||= reply.last;
      }
      grow(reply, choice.delta);
      reply.finish = choice.finish_reason || reply.finish;
    }
    reply.usage = record.usage || reply.usage;
    if (!due) {
      due = true;
      requestAnimationFrame(() => { due = false; if (!reply.ended) show(b, reply); });
    }
  }
}

async function answer() {
  running = new AbortController();
  busy(true);
  const b = bubble();
  const reply = {content: '', reasoning: '', calls: [], start: performance.now(), first: 0, last: 0, finish: '', usage: null, ended: false};
  let failed = '';
  try {
    await read(reply, b);
  } catch (e) {
    if (e.name === 'AbortError') reply.finish = 'stopped';
    else failed = e.message;
  }
  running = null;
  reply.ended = true;
  busy(false);
  show(b, reply);
  if (failed) { b.facts.textContent = failed; b.facts.className = 'facts bad'; }
  else if (!b.facts.textContent) b.facts.textContent = reply.finish || 'empty reply';
  remember(reply, b, failed);
  $('log').scrollTop = $('log').scrollHeight;
}

// remember adds a reply to the conversation. If it failed without content, its question
// returns to the input field.
function remember(reply, b, failed) {
  if (failed && !reply.content && !reply.calls.length) {
    const last = messages.at(-1);
    if (last && last.role === 'user') { messages.pop(); if (!$('text').value.trim()) { $('text').value = last.content; fit(); } }
    return;
  }
  const m = {role: 'assistant', content: reply.content};
  if (reply.reasoning) m.reasoning = reply.reasoning;
  if (reply.calls.length && reply.finish !== 'stopped' && !failed) {
    m.tool_calls = reply.calls;
    ask(b, reply.calls);
  }
  messages.push(m);
}

// ask adds input fields for the tools' answers. When all are given, the model continues.
function ask(b, calls) {
  const left = new Set(calls.map(c => c.id));
  calls.forEach((c, i) => {
    const form = add(b.calls.children[i], 'form');
    const field = add(form, 'input');
    field.placeholder = 'what ' + c.function.name + ' answers';
    field.setAttribute('aria-label', field.placeholder);
    add(form, 'button', '', 'Answer').type = 'submit';
    form.addEventListener('submit', e => {
      e.preventDefault();
      if (running || !left.delete(c.id)) return;
      messages.push({role: 'tool', tool_call_id: c.id, name: c.function.name, content: field.value});
      form.replaceWith(Object.assign(document.createElement('pre'), {textContent: field.value}));
      if (!left.size) answer();
    });
    if (!i) field.focus();
  });
}

function busy(yes) {
  $('send').hidden = yes;
  $('stop').hidden = !yes;
  if (!yes && $('settings').hidden) $('text').focus();
}

function fit() {
  $('text').style.height = 'auto';
  $('text').style.height = $('text').scrollHeight + 2 + 'px';
}

function send() {
  const text = $('text').value.trim();
  if (!text || running) return;
  $('welcome').hidden = true;
  messages.push({role: 'user', content: text});
  write(add($('log'), 'article', 'message user'), text);
  $('text').value = '';
  fit();
  $('log').scrollTop = $('log').scrollHeight;
  answer();
}

function fresh() {
  if (running) running.abort();
  messages = [];
  for (const e of [...$('log').querySelectorAll('.message')]) e.remove();
  $('welcome').hidden = false;
  $('text').focus();
}

function settings(open, focus) {
  $('settings').hidden = !open;
  $('show-settings').setAttribute('aria-expanded', open);
  if (open) { panel(false); $(focus || 'temperature').focus(); }
}

function panel(open) {
  document.body.classList.toggle('state', open);
  $('show-state').setAttribute('aria-expanded', open);
}

const stop = () => running && running.abort();
$('ask').addEventListener('submit', e => { e.preventDefault(); send(); });
$('settings').addEventListener('submit', e => { e.preventDefault(); settings(false); $('text').focus(); });
$('stop').addEventListener('click', stop);
$('fresh').addEventListener('click', fresh);
$('show-settings').addEventListener('click', () => settings($('settings').hidden));
$('show-state').addEventListener('click', () => { settings(false); panel(!document.body.classList.contains('state')); });
$('text').addEventListener('input', fit);
$('text').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
});
document.addEventListener('keydown', e => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (e.key === 'Escape') { if (running) stop(); else if (!$('settings').hidden) { settings(false); $('text').focus(); } }
  else if (e.altKey && e.code === 'KeyN') { e.preventDefault(); fresh(); }
  else if (e.key === '/' && !typing) { e.preventDefault(); panel(false); $('text').focus(); }
});
