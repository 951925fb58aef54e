// The list of kept conversations.
let unkept = false;

// remember stores a conversation with these messages, unless it was deleted.
function remember(c, messages) {
  if (c.deleted || !messages.length) return;
  c.at = Date.now();
  const removed = storeChat({...c, messages: messages.map(validMessage).filter(Boolean)});
  if (c === chat) keepInTab('vapp.current', c.id);
  if (removed && removed.length) toast('The browser\'s storage was full: “' + removed[0] + '”' + (removed.length > 1 ? ' and ' + (removed.length - 1) + ' more' : '') + ' made place.');
  unkept = !removed;
  listChats();
}

// open shows a conversation.
function open(c) {
  stop();
  chat = c;
  keepInTab('vapp.current', c.id);
  draw();
  listChats();
}

function when(at) {
  const d = new Date(at);
  return d.toDateString() === new Date().toDateString() ? d.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'}) : d.toLocaleDateString([], {month: 'short', day: 'numeric'});
}

function listChats() {
  const all = chatList();
  const focused = document.activeElement?.closest('#list li')?.dataset.id;
  $('list').replaceChildren();
  for (const c of all) {
    const li = add($('list'), 'li');
    li.dataset.id = c.id;
    const b = button(li, 'title', c.title, () => {
      const found = loadChat(c.id);
      if (!found) { toast('This conversation cannot be read.', 'Remove it', () => { dropChat(c.id); listChats(); }); return; }
      open(found);
      if (narrow.chats.matches) panel('chats', false);
      $('text').focus();
    });
    b.title = c.title;
    if (c.id === chat.id) b.setAttribute('aria-current', 'true');
    add(li, 'span', 'when', when(c.at));
    button(li, 'quiet delete', '×', () => remove(c)).setAttribute('aria-label', 'delete ' + c.title);
    if (c.id === focused) b.focus();
  }
  $('clear').hidden = !all.length;
  $('chats-note').textContent = unkept ? 'This browser does not store the conversation: its storage is full or switched off.' : all.length ? 'Kept in this browser only' + (imagesIn(chat.messages) ? ', large images as smaller copies.' : '.') : 'None yet. They are kept in this browser only.';
}

// remove deletes a conversation, which can be undone for some seconds.
function remove(c) {
  const was = loadChat(c.id);
  dropChat(c.id);
  if (c.id === chat.id) { chat.deleted = true; open(newChat()); }
  listChats();
  ($('list').querySelector('.title') || $('text')).focus();
  toast('Deleted “' + c.title + '”.', was && 'Undo', () => { storeChat(was); listChats(); });
}

$('clear').addEventListener('click', () => {
  const all = chatList().map(c => loadChat(c.id)).filter(Boolean);
  for (const c of chatList()) dropChat(c.id);
  chat.deleted = true;
  open(newChat());
  $('text').focus();
  toast(all.length === 1 ? 'Deleted the conversation.' : 'Deleted ' + all.length + ' conversations.', 'Undo', () => { for (const c of all) storeChat(c); listChats(); });
});
addEventListener('storage', e => { if (e.key === 'vapp.chats') listChats(); });

for (const text of [
  'What is the capital of France?', 'Explain in three points what a KV cache is.',
  'Write a function in Go that reverses a string.', 'Compare tea and coffee in a table.',
]) {
  button(add($('examples'), 'li'), '', text, () => { send(text, []); $('text').focus(); });
}
open(loadChat(ofTab('vapp.current')) || newChat());
if (chat.messages.at(-1)?.role === 'user') {
  const view = replyView();
  view.show({content: '', error: 'This message has no reply yet.'}, true);
  unanswered(view, chat.messages);
}
