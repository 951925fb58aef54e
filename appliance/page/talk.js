// The chat: the conversation that is open, and the reply that is under way.
let chat = newChat();
let running = null; // the AbortController of the current reply

function newChat() {
  return {id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: '', at: 0, messages: []};
}

// request returns the body of a request for the next reply. The server gets only the fields
// of the API.
function request(messages) {
  const body = {model: $('model').value, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}, ...requestSettings()};
  const system = $('system').value.trim();
  body.messages = system ? [{role: 'system', content: system}] : [];
  const why = tooMany(imagesIn(messages));
  if (why) throw new Error(why);
  for (const m of messages) {
    const {role, reasoning, tool_calls, tool_call_id, name} = m;
    body.messages.push({role, content: contentOf(m), reasoning, tool_calls, tool_call_id, name});
  }
  const text = JSON.stringify(body);
  const large = imagesIn(messages) ? tooLarge(new Blob([text]).size) : '';
  if (large) throw new Error('It is not sent: ' + large);
  return text;
}

const atEnd = () => $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 60;
const toEnd = () => { $('log').scrollTop = $('log').scrollHeight; };

function grow(reply, delta) {
  reply.reasoning += delta.reasoning || '';
  reply.content += delta.content || '';
  for (const c of delta.tool_calls || []) {
    reply.tool_calls ||= [];
    const k = reply.tool_calls[c.index] ||= {id: c.id, type: 'function', function: {name: '', arguments: ''}};
    k.function.name += c.function.name || '';
    k.function.arguments += c.function.arguments || '';
  }
}

// measured returns the figures of a reply as text.
function measured(t) {
  const n = t.usage && t.usage.completion_tokens;
  if (!n) return '';
  const s = (t.last - t.first) / 1000;
  return [
    n + (n === 1 ? ' token' : ' tokens'), s > 0 && n > 1 ? ((n - 1) / s).toFixed(1) + ' tokens/s' : '',
    'first after ' + ((t.first - t.start) / 1000).toFixed(2) + ' s', t.usage.prompt_tokens + ' in the prompt',
  ].filter(Boolean).join(' · ');
}

// read receives a reply. It draws at most once a frame, and when drawing is slow, it takes
// at most a quarter of the time.
async function read(reply, times, draw, messages, signal) {
  const r = await ask('v1/chat/completions', {method: 'POST', headers: headers(), body: request(messages), signal});
  if (!r.ok) {
    if (r.status === 401) settings(true, 'key');
    throw new Error(await refusal(r));
  }
  let due = false;
  let pause = 0;
  for await (const record of records(r.body)) {
    if (record.error) throw new Error(record.error.message);
    const choice = record.choices[0];
    if (choice) {
      if (choice.delta.content || choice.delta.reasoning || choice.delta.tool_calls) {
        times.last = performance.now();
        times.first ||= times.last;
      }
      grow(reply, choice.delta);
      reply.end = choice.finish_reason || reply.end;
    }
    times.usage = record.usage || times.usage;
    if (due) continue;
    due = true;
    const later = () => requestAnimationFrame(() => {
      due = false;
      if (reply.ended) return;
      const from = performance.now();
      draw();
      pause = 3 * (performance.now() - from);
    });
    if (pause > 40) setTimeout(later, pause);
    else later();
  }
}

// answer requests the next reply of the open conversation and shows it.
async function answer() {
  const mine = chat;
  const list = mine.messages; // another one, once the user has replaced or undone something
  const messages = [...list];
  const reply = {role: 'assistant', content: '', reasoning: '', end: '', facts: '', ended: false};
  const times = {start: performance.now(), first: 0, last: 0, usage: null};
  for (const e of $('log').querySelectorAll('.unanswered')) e.remove();
  $('said').replaceChildren();
  const view = replyView();
  const draw = () => {
    const stay = atEnd();
    reply.facts = measured(times);
    view.speak(view.show({...reply, end: ''}, false), false);
    if (stay) toEnd();
    below();
  };
  toEnd();
  const own = running = new AbortController();
  running.save = () => { if (reply.content) remember(mine, [...messages, finished(reply, 'stopped')]); };
  busy(true);
  let failed = '';
  try {
    await read(reply, times, draw, messages, own.signal);
  } catch (e) {
    if (e.name === 'AbortError') reply.end = 'stopped';
    else failed = e.message;
  }
  if (running === own) running = null;
  reply.ended = true;
  if (!running) busy(false);
  reply.facts = measured(times);
  const done = finished(reply, reply.end || 'empty reply', failed);
  const stay = atEnd();
  view.speak(view.show(done, true), true);
  if (mine.messages !== list) return;
  const empty = !reply.content && !reply.tool_calls && (failed || reply.end === 'stopped');
  if (!empty) list.push(done);
  remember(mine, list);
  if (mine !== chat) return;
  if (empty) unanswered(view, list);
  else finish(view, done, true);
  if (stay) toEnd();
  below();
}

// finished returns a reply as a message of the conversation. The calls of an incomplete
// reply are not kept: they cannot be answered.
function finished(reply, end, failed) {
  const m = {role: 'assistant', content: reply.content, facts: reply.facts, end};
  if (reply.reasoning) m.reasoning = reply.reasoning;
  if (reply.tool_calls && end !== 'stopped' && !failed) m.tool_calls = reply.tool_calls.filter(Boolean);
  if (failed) m.error = failed;
  return m;
}

// finish adds what can be done with a complete reply.
function finish(view, m, live) {
  if (m.content) {
    const b = button(view.actions, 'quiet', 'Copy', () => copy(m.content, b));
  }
  button(view.actions, 'quiet again', 'Regenerate', () => regenerate(m));
  if (m.tool_calls) askTools(view, m.tool_calls, live);
}

// unanswered marks a question that got no reply. It can be sent again; the next message
// replaces it.
function unanswered(view, messages) {
  view.article.classList.add('unanswered');
  button(view.actions, 'again', 'Try again', () => {
    const last = chat.messages.at(-1);
    if (running || !last) return;
    if (last.role === 'user' && $('text').value.trim() === last.content) compose('', []);
    answer();
  });
  const last = messages.at(-1);
  if (last && last.role === 'user' && !$('text').value.trim() && !attached.length) compose(last.content, last.images || []);
}

// compose sets the text and the images of the message field.
function compose(text, images) {
  $('text').value = text;
  fit();
  attached = images.filter(p => p.url);
  refuse('');
  showAttached();
}

// askTools shows the answers of tools, and input fields for those that are missing. When
// all are given, the model continues.
function askTools(view, calls, live) {
  const answers = new Map(chat.messages.filter(m => m.role === 'tool').map(m => [m.tool_call_id, m.content]));
  const left = new Set(calls.map(c => c.id).filter(id => !answers.has(id)));
  calls.forEach((c, i) => {
    const to = view.calls.children[i];
    const given = text => { add(to, 'pre', 'given', text).tabIndex = 0; };
    if (!left.has(c.id)) {
      given(answers.get(c.id));
      return;
    }
    const form = add(to, 'form');
    const field = add(form, 'input');
    field.placeholder = 'what ' + c.function.name + ' answers';
    field.setAttribute('aria-label', field.placeholder);
    add(form, 'button', '', 'Answer').type = 'submit';
    form.addEventListener('submit', e => {
      e.preventDefault();
      if (running || !left.delete(c.id)) return;
      chat.messages.push({role: 'tool', tool_call_id: c.id, name: c.function.name, content: field.value});
      given(field.value);
      form.remove();
      if (!left.size) answer();
    });
    if (live) field.focus();
    live = false;
  });
}

// submit sends the text and the images of the message field, once its files are read.
async function submit() {
  await reading;
  send($('text').value.trim(), attached);
}

function send(text, images) {
  if (!text && !images.length || running) return;
  if (chat.messages.at(-1)?.role === 'user') {
    chat.messages.pop();
    [...$('log').querySelectorAll('.message.user')].at(-1)?.remove();
  }
  $('welcome').hidden = true;
  const m = userMessage(text, images);
  chat.messages.push(m);
  if (!chat.title) chat.title = titleOf(m);
  userView(m);
  compose('', []);
  remember(chat, chat.messages);
  answer();
}

const userMessage = (text, images) => ({role: 'user', content: text, ...images.length ? {images} : {}});

// titleOf returns the title of a conversation: the beginning of its first message, or the name
// of the message's first image.
function titleOf(m) {
  const line = (m.content || m.images[0].name).split('\n').find(l => l.trim()).trim();
  return line.length > 60 ? line.slice(0, 59) + '…' : line;
}

// replaceFrom continues the conversation with other messages; the former ones can be had
// back for some seconds.
function replaceFrom(messages, words) {
  if (running) return;
  const mine = chat;
  const before = mine.messages;
  mine.messages = messages;
  draw();
  answer();
  toast(words, 'Undo', () => {
    if (running) stop();
    mine.messages = before;
    remember(mine, before);
    if (mine === chat) draw();
  });
}

function regenerate(m) {
  const i = chat.messages.indexOf(m);
  if (i > 0) replaceFrom(chat.messages.slice(0, i), 'The reply is replaced.');
}

function resend(m, text, images) {
  const i = chat.messages.indexOf(m);
  if (i < 0 || running) return;
  const other = userMessage(text, images);
  if (!i) chat.title = titleOf(other);
  replaceFrom([...chat.messages.slice(0, i), other], 'The message and what followed are replaced.');
}

// draw shows the open conversation from its messages.
function draw() {
  for (const e of $('log').querySelectorAll('.message')) e.remove();
  $('welcome').hidden = chat.messages.length > 0;
  for (const m of chat.messages) {
    if (m.role === 'user') userView(m);
    if (m.role !== 'assistant') continue;
    const view = replyView();
    view.show(m, true);
    finish(view, m);
  }
  toEnd();
  below();
}

function busy(yes) {
  document.body.classList.toggle('busy', yes);
  $('send').hidden = yes;
  $('stop').hidden = !yes;
  if (yes) say('The model replies.');
  else if ($('settings').hidden && [document.body, $('stop'), $('text')].includes(document.activeElement)) $('text').focus();
}

// below shows the button to the newest text while that is out of sight.
function below() { $('down').hidden = atEnd(); }

function fit() {
  $('text').style.height = 'auto';
  $('text').style.height = $('text').scrollHeight + 'px';
}

function fresh() {
  stop();
  open(newChat());
  $('text').focus();
}

const stop = () => running && running.abort();
$('ask').addEventListener('submit', e => { e.preventDefault(); submit(); });
$('stop').addEventListener('click', stop);
$('fresh').addEventListener('click', fresh);
$('text').addEventListener('input', fit);
$('log').addEventListener('scroll', below);
$('down').addEventListener('click', () => { toEnd(); $('log').focus(); });
addEventListener('pagehide', () => running && running.save());
