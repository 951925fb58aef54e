// The server's figures.
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
function size(n) {
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i && n < 100 ? n.toFixed(n < 10 ? 2 : 1) : Math.round(n)) + ' ' + units[i];
}
const count = n => n.toLocaleString('en');
const rates = [];
let before = null;
let drawn = ''; // the data of the parts that rarely change, as last drawn

function now(s) {
  $('running').textContent = count(s.running);
  $('waiting').textContent = count(s.waiting);
  const share = 100 * s.kv_used;
  $('kv-text').textContent = (share && share < 10 ? share.toFixed(1) : Math.round(share)) + ' %';
  $('kv').setAttribute('aria-valuenow', Math.round(share));
  $('kv').firstChild.style.width = share + '%';
  const t = performance.now();
  if (before && s.generated >= before.n && t > before.t) {
    const rate = 1000 * (s.generated - before.n) / (t - before.t);
    $('rate').textContent = rate >= 100 ? count(Math.round(rate)) : rate.toFixed(1);
    rates.push(rate);
    if (rates.length > 120) rates.shift();
    const top = Math.max(1, ...rates);
    $('curve').firstChild.setAttribute('points', rates.map((r, i) => (300 - 2.5 * (rates.length - 1 - i)) + ',' + (46 - 44 * r / top).toFixed(1)).join(' '));
  }
  before = {n: s.generated, t};
}

function cells(row, values, classes) {
  values.forEach((v, i) => add(row, 'td', classes[i], v));
}

function plan(p) {
  $('where').textContent = p.model.replace(/^.*\/(?=[^/]+\.\w+$)/, '') + ' · ' + p.backend + ' · ' + p.device;
  $('where').title = p.model;
  const free = p.segments.filter(s => s.name === 'free').reduce((n, s) => n + s.bytes, 0);
  // leave free memory out of the bar if it is more than half
  const shown = p.segments.filter(s => s.name !== 'free' || free < p.total_bytes / 2);
  const whole = shown.reduce((n, s) => n + s.bytes, 0);
  $('planned').textContent = size(p.total_bytes - free) + ' of ' + size(p.total_bytes) + ' planned';
  $('bar').replaceChildren();
  $('legend').replaceChildren();
  for (const s of p.segments) {
    const cls = 'c-' + s.name.split(/[ ,]/)[0];
    if (shown.includes(s)) {
      const part = add($('bar'), 'i', cls);
      part.style.flexGrow = s.bytes / whole;
      part.title = s.name + ': ' + size(s.bytes) + ' (' + s.what + ')';
    }
    const li = add($('legend'), 'li');
    add(li, 'i', cls);
    add(li, 'span', '', s.name);
    add(li, 'span', '', size(s.bytes));
  }
  $('bar').setAttribute('aria-label', 'memory by use: ' + p.segments.map(s => s.name + ' ' + size(s.bytes)).join(', '));
  $('lengths').replaceChildren();
  for (const l of p.lengths) cells(add($('lengths'), 'tr'), [count(l.tokens), count(l.sequences), count(l.running)], ['n', 'n', 'n']);
}

function ledger(lines) {
  $('ledger').replaceChildren();
  for (const l of lines) {
    const off = l.actual_bytes - l.plan_bytes;
    cells(add($('ledger'), 'tr'), [l.item, size(l.plan_bytes), size(l.actual_bytes), off ? (off > 0 ? '+' : '−') + size(Math.abs(off)) : '0'],
      ['', 'n', 'n', 'n ' + (off ? 'off' : 'same')]);
  }
  if (!lines.length) cells(add($('ledger'), 'tr'), ['nothing is allocated yet'], ['soft']);
}

function reloads(list) {
  $('reloads').replaceChildren();
  if (!list.length) add($('reloads'), 'li', 'soft', 'The profile has not been read again.');
  for (const r of list) {
    const li = add($('reloads'), 'li');
    add(li, 'span', r.outcome, r.outcome);
    li.append(' · ' + (r.class === 'none' ? r.trigger : r.class) + ' · ' + new Date(r.at).toLocaleTimeString());
    for (const c of r.changes || []) add(li, 'div', 'soft', c);
    for (const c of r.pending || []) add(li, 'div', 'soft', 'pending: ' + c);
    if (r.note) add(li, 'div', 'soft', r.note);
    if (r.error) add(li, 'div', 'soft', r.error);
  }
}

// pending shows the changes of the profile that are not in effect.
function pending(p) {
  $('pending').hidden = !p;
  $('pending-list').replaceChildren();
  if (!p) return;
  $('pending-what').textContent = 'Changes since ' + new Date(p.since).toLocaleTimeString() + (p.error ? '. A restart would fail: ' + p.error : ', in effect after a restart or when the running requests have ended.');
  for (const c of p.changes || []) add($('pending-list'), 'li', '', c);
}

// badge shows in the header that the newest profile is refused or not in effect.
function badge(s) {
  const refused = s.reloads.length && s.reloads[0].outcome === 'rejected';
  const n = s.pending ? (s.pending.changes || []).length : 0;
  $('badge').hidden = !refused && !s.pending;
  $('badge').className = 'badge ' + (refused ? 'bad' : 'warn');
  $('badge').textContent = refused ? 'profile rejected' : n === 1 ? '1 change pending' : n + ' changes pending';
  $('badge').title = refused ? s.reloads[0].error || '' : 'The profile has changes that are not in effect.';
}
$('badge').addEventListener('click', () => {
  settings(false);
  panel('state', true);
  const to = $('badge').classList.contains('warn') ? $('pending') : $('reloads-title');
  to.scrollIntoView({block: 'start'});
  $('reloads-title').focus({preventScroll: true});
});

function models(names) {
  const was = $('model').value;
  $('model').replaceChildren(...names.map(n => new Option(n, n)));
  if (names.includes(was)) $('model').value = was;
  $('asked').textContent = names[0] + ' on this server. Nothing leaves it.';
  document.title = names[0] + ' · vapp';
}

function phase(word, good) {
  if ($('phase').textContent !== word) $('phase').textContent = word;
  $('phase').className = 'pill' + (good === undefined ? '' : good ? ' ready' : ' bad');
}

// banner shows what keeps the server from answering, and what can be done about it.
function banner(text, label, act) {
  $('banner').hidden = !text;
  if ($('banner-text').textContent !== text) $('banner-text').textContent = text;
  $('banner-act').hidden = !label;
  $('banner-act').textContent = label || '';
  $('banner-act').onclick = act;
}

let lastPhase = '';
const tryAgain = () => { phase('connecting'); $('banner-text').textContent = 'Asking again…'; poll(); };

async function look() {
  const r = await ask('admin/status', {headers: headers()});
  if (r.status === 401) {
    phase('needs a key', false);
    banner('This server requires an API key.', 'Enter the key', () => settings(true, 'key'));
    return;
  }
  if (!r.ok) throw new Error(await refusal(r));
  const s = await r.json();
  lastPhase = s.phase;
  phase(s.phase, s.phase === 'ready' ? true : s.phase === 'failed' ? false : undefined);
  if (s.phase === 'failed') banner('The server could not load the model' + (s.why ? ': ' + s.why : '.'));
  else if (s.phase === 'ready') banner('');
  else banner('The server is ' + s.phase + '. It answers when it is ready.');
  now(s.now);
  takesImages(s.limit_mm_per_prompt?.image || 0);
  bodyLimit = s.max_body_bytes || 0;
  const rest = JSON.stringify([s.models, s.plan, s.ledger, s.reloads, s.pending, s.sampling]);
  if (rest === drawn) return;
  drawn = rest;
  models(s.models);
  placeholders(s.sampling);
  plan(s.plan);
  ledger(s.ledger);
  pending(s.pending);
  badge(s);
  reloads(s.reloads);
}

// poll looks once and shows what went wrong.
async function poll() {
  try {
    await look();
  } catch (e) {
    phase('no answer', false);
    banner(e.message, 'Try again', tryAgain);
    for (const id of ['running', 'waiting', 'rate', 'kv-text']) $(id).textContent = '–';
    before = null;
  }
}

async function follow() {
  for (;;) {
    if (!document.hidden) await poll();
    await new Promise(done => setTimeout(done, 1000));
  }
}
$('key').addEventListener('change', poll);
follow();
