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

function models(names) {
  const was = $('model').value;
  $('model').replaceChildren(...names.map(n => new Option(n, n)));
  if (names.includes(was)) $('model').value = was;
  document.title = names[0] + ' · vapp';
}

function phase(word, good) {
  $('phase').textContent = word;
  $('phase').className = 'pill' + (good === undefined ? '' : good ? ' ready' : ' bad');
}

function trouble(text) {
  $('trouble').hidden = !text;
  $('trouble').textContent = text;
}

async function look() {
  const r = await fetch('admin/status', {headers: headers()});
  if (r.status === 401) {
    phase('needs a key', false);
    trouble('This server requires an API key: enter it under Settings.');
    return;
  }
  if (!r.ok) throw new Error(await refusal(r));
  const s = await r.json();
  phase(s.phase, s.phase === 'ready' ? true : s.phase === 'failed' ? false : undefined);
  trouble('');
  now(s.now);
  const rest = JSON.stringify([s.models, s.plan, s.ledger, s.reloads]);
  if (rest === drawn) return;
  drawn = rest;
  models(s.models);
  plan(s.plan);
  ledger(s.ledger);
  reloads(s.reloads);
}

async function follow() {
  for (;;) {
    if (!document.hidden) {
      try { await look(); } catch (e) { phase('no answer', false); trouble(e.message); before = null; }
    }
    await new Promise(done => setTimeout(done, 1000));
  }
}
$('key').addEventListener('change', () => look().catch(e => trouble(e.message)));
follow();
