// Requests to the server, and words for what goes wrong.
const headers = () => {
  const h = {'Content-Type': 'application/json'};
  if ($('key').value) h.Authorization = 'Bearer ' + $('key').value;
  return h;
};

// The profile that the address names, where the server has several: /?profile=NAME.
const profile = new URLSearchParams(location.search).get('profile');

// ask requests a path of the server. No answer at all becomes an error in plain words.
async function ask(path, options) {
  if (profile) path += '?profile=' + encodeURIComponent(profile);
  try {
    return await fetch(path, options);
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw Object.assign(new Error('The server does not answer. Is vapp running? This page asks ' + location.origin + '.'), {lost: true});
  }
}

// refusal returns the message of an error reply.
async function refusal(r) {
  const text = await r.text();
  let words = text || r.statusText;
  try {
    const e = JSON.parse(text).error;
    words = String(typeof e === 'string' ? e : e.message);
  } catch { /* not JSON: use the text */ }
  const after = r.headers.get('Retry-After');
  if (r.status === 503 && lastPhase && lastPhase !== 'ready' && !words.includes(lastPhase)) words += ' The server is ' + lastPhase + '.';
  return r.status + ': ' + words + (after && !words.includes('second') ? ' Try again in ' + after + ' s.' : '');
}

// records yields the records of a stream of server-sent events.
async function* records(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read().catch(e => {
      if (e.name === 'AbortError') throw e;
      throw new Error('The connection to the server was lost in the middle of the reply.');
    });
    if (done) return;
    rest += value;
    const lines = rest.split('\n');
    rest = lines.pop();
    for (const l of lines) if (l.startsWith('data: ') && l !== 'data: [DONE]') yield JSON.parse(l.slice(6));
  }
}
