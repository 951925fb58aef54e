// The settings of requests. The tab keeps them; the browser does not.
const knobs = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'];
const kept = [...knobs, 'key', 'system', 'tools'];

for (const id of kept) {
  $(id).value = ofTab('vapp.' + id);
  $(id).addEventListener('change', () => { keepInTab('vapp.' + id, $(id).value); countSettings(); });
}

// countSettings writes on the button how many settings differ from the server's.
function countSettings() {
  const n = kept.filter(id => id !== 'key' && $(id).value.trim()).length;
  $('show-settings').textContent = n ? 'Settings (' + n + ')' : 'Settings';
}

// requestSettings returns the fields of a request that the settings decide.
function requestSettings() {
  const body = {};
  for (const id of knobs) {
    if ($(id).validity.badInput) throw new Error('The setting ' + id + ' is not a number.');
    if ($(id).value !== '') body[id] = Number($(id).value);
  }
  if ($('tools').value.trim()) {
    try { body.tools = JSON.parse($('tools').value); } catch (e) { throw new Error('The tools are not valid JSON: ' + e.message); }
  }
  return body;
}

// placeholders shows the values that the server uses for empty fields.
function placeholders(s) {
  for (const id of knobs) {
    if (id === 'seed') continue;
    const v = s && s[id];
    let text = "server's";
    if (typeof v === 'number') text = (id === 'top_k' && v <= 0 ? 'off' : Number.isInteger(v) && !/top_k|max_tokens/.test(id) ? v.toFixed(1) : String(v)) + ' (server)';
    else if (s && id === 'max_tokens') text = 'to the end of ' + count(s.max_model_len);
    $(id).placeholder = text;
  }
}

function settings(open, focus) {
  $('settings').hidden = !open;
  $('show-settings').setAttribute('aria-expanded', open);
  if (!open) return;
  for (const name of ['chats', 'state']) if (narrow[name].matches) panel(name, false);
  $(focus || 'temperature').focus();
}

function closeSettings() {
  settings(false);
  $('text').focus();
}

$('reset').addEventListener('click', () => {
  for (const id of kept) {
    if (id === 'key') continue;
    $(id).value = '';
    keepInTab('vapp.' + id, '');
  }
  countSettings();
  $('temperature').focus();
});
$('settings').addEventListener('submit', e => { e.preventDefault(); closeSettings(); });
$('show-settings').addEventListener('click', () => settings($('settings').hidden));
countSettings();
