// The elements of messages.
const ends = {
  length: 'length: cut at max_tokens or the end of the context', stopped: 'stopped', stop: 'stop', tool_calls: 'tool_calls',
};

// replyView adds the elements of a reply. Its show draws a message into them, also while
// the message grows.
function replyView() {
  const article = add($('log'), 'article', 'message assistant');
  article.setAttribute('aria-label', 'reply');
  const think = add(article, 'details', 'reasoning');
  think.hidden = true;
  const title = add(think, 'summary', '', 'Thinking…');
  const thought = add(think, 'div', 'text');
  const content = add(article, 'div', 'content');
  const write = writer(content);
  const calls = add(article, 'div', 'calls');
  const foot = add(article, 'div', 'foot');
  const facts = add(foot, 'div', 'facts');
  const actions = add(foot, 'div', 'actions');
  let spoken = 0;
  const show = (m, complete) => {
    think.hidden = !m.reasoning;
    if (m.reasoning) thought.textContent = m.reasoning;
    if (m.content || m.tool_calls || complete) title.textContent = 'Thought about it';
    const blocks = write(m.content, complete);
    (m.tool_calls || []).forEach((c, i) => showCall(calls, i, c));
    facts.textContent = m.error || [m.facts, ends[m.end] || m.end].filter(Boolean).join(' · ');
    facts.classList.toggle('bad', !!m.error);
    facts.classList.toggle('cut', m.end === 'length');
    article.classList.toggle('growing', !complete);
    return blocks;
  };
  // speak has a screen reader speak the blocks that are complete, each once.
  const speak = (blocks, complete) => {
    for (const end = complete ? blocks.length : blocks.length - 1; spoken < end; spoken++) {
      const b = blocks[spoken];
      say(b.set ? 'Code: ' + b.text : b.textContent);
    }
    if (complete) say(facts.textContent);
  };
  return {article, calls, actions, show, speak};
}

// showCall shows a tool call: its name, and its arguments folded.
function showCall(to, i, c) {
  let e = to.children[i];
  if (!e) {
    e = add(to, 'div', 'call');
    const fold = add(e, 'details');
    const line = add(fold, 'summary', '', 'calls ');
    add(line, 'b');
    add(line, 'span', 'brief');
    codeBlock(fold, '', 'json');
  }
  let args = c.function.arguments;
  try { args = JSON.stringify(JSON.parse(args), null, 2); } catch { /* incomplete */ }
  e.querySelector('b').textContent = c.function.name;
  e.querySelector('.brief').textContent = '(' + c.function.arguments.slice(0, 80) + (c.function.arguments.length > 80 ? '…' : '') + ')';
  const block = e.querySelector('.code');
  if (block.text !== args) block.set(args);
}

// userView adds the elements of a message of the user: plain text, as it was written.
function userView(m) {
  const article = add($('log'), 'article', 'message user');
  article.setAttribute('aria-label', 'your message');
  if (m.images) pictures(add(article, 'ul', 'pictures'), m.images);
  if (m.content) add(article, 'div', 'text', m.content);
  const actions = add(article, 'div', 'actions');
  if (m.content) { const b = button(actions, 'quiet', 'Copy', () => copy(m.content, b)); }
  button(actions, 'quiet edit', 'Edit', () => edit(m, article));
  return article;
}

// edit replaces a message of the user by an editor.
function edit(m, article) {
  if (article.querySelector('form')) return;
  const form = add(article, 'form', 'editor');
  let images = (m.images || []).filter(p => p.url);
  const list = add(form, 'ul', 'pictures');
  const show = () => {
    list.hidden = !images.length;
    list.replaceChildren();
    pictures(list, images, p => { images = images.filter(q => q !== p); show(); area.focus(); });
  };
  const area = add(form, 'textarea');
  area.value = m.content;
  area.setAttribute('aria-label', 'edit the message');
  const line = add(form, 'div', 'line');
  add(line, 'p', 'soft', 'What follows this message is replaced.');
  const close = () => { form.remove(); article.classList.remove('editing'); $('text').focus(); };
  button(line, '', 'Cancel', close);
  add(line, 'button', 'strong', 'Send').type = 'submit';
  form.addEventListener('submit', e => {
    e.preventDefault();
    if (area.value.trim() || images.length) resend(m, area.value.trim(), images);
  });
  area.addEventListener('keydown', e => {
    if (e.key === 'Escape') { e.stopPropagation(); close(); }
    else if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); form.requestSubmit(); }
  });
  const tall = () => { area.style.height = 'auto'; area.style.height = area.scrollHeight + 2 + 'px'; };
  area.addEventListener('input', tall);
  article.classList.add('editing');
  show();
  tall();
  area.focus();
}
