// The conversations that the browser keeps: each under a key of its own, and a list of
// them, the newest first. They are bounded; the oldest ones make place for new ones.
const mostChats = 100;
const mostChars = 4000000; // browsers give a site about five million characters

// stored returns what is stored under a name, null where nothing valid is.
function stored(name) {
  try { return JSON.parse(localStorage.getItem('vapp.' + name)); } catch { return null; }
}

const isText = v => typeof v === 'string';

// Bounds of images, in characters of their data: URLs: of one, and of all in a conversation.
const mostImageChars = 600000;
const mostImagesChars = 2000000;
const imageURL = /^data:image\/(?:png|jpeg|webp|gif|bmp|tiff);base64,[A-Za-z0-9+/]+={0,2}$/;

// validImages returns the images of a message as they are stored. One that is too large, or
// has another form, is its name only.
function validImages(list) {
  if (!Array.isArray(list)) return [];
  return list.filter(p => p && isText(p.name)).slice(0, 1000).map(p => {
    const url = isText(p.kept) ? p.kept : p.url;
    const out = {name: p.name.slice(0, 60)};
    if (!isText(url) || url.length > mostImageChars || !imageURL.test(url)) return out;
    return {...out, url, reduced: p.reduced === true || isText(p.url) && url !== p.url};
  });
}

// boundImages keeps the newest images of a conversation, and the names of the others.
function boundImages(messages) {
  let left = mostImagesChars;
  return messages.toReversed().map(m => m.images ? {...m, images: m.images.toReversed().map(p => {
    left -= p.url ? p.url.length : 0;
    return left < 0 ? {name: p.name} : p;
  }).reverse()} : m).reverse();
}

// validCalls returns the tool calls of a stored message that have the right form.
function validCalls(list) {
  if (!Array.isArray(list)) return [];
  return list.filter(c => c && isText(c.id) && c.function && isText(c.function.name) && isText(c.function.arguments))
    .map(c => ({id: c.id, type: 'function', function: {name: c.function.name, arguments: c.function.arguments}}));
}

// validMessage returns a stored message with only the fields that the page knows, null for
// anything else: other programs of this address can write to the storage too.
function validMessage(m) {
  if (!m || !['user', 'assistant', 'tool'].includes(m.role) || !isText(m.content)) return null;
  const out = {role: m.role, content: m.content};
  for (const k of ['reasoning', 'tool_call_id', 'name', 'facts', 'end', 'error']) if (isText(m[k])) out[k] = m[k];
  const calls = validCalls(m.tool_calls);
  if (calls.length) out.tool_calls = calls;
  const images = m.role === 'user' ? validImages(m.images) : [];
  if (images.length) out.images = images;
  return out;
}

// chatList returns id, title, time and length of the stored conversations.
function chatList() {
  const list = stored('chats');
  if (!Array.isArray(list)) return [];
  return list.filter(c => c && isText(c.id) && isText(c.title) && typeof c.at === 'number' && typeof c.chars === 'number');
}

// loadChat returns a stored conversation, null if it is not there.
function loadChat(id) {
  const c = stored('chat.' + id);
  if (!c || !isText(c.title) || !Array.isArray(c.messages)) return null;
  const messages = c.messages.map(validMessage);
  return messages.includes(null) ? null : {id, title: c.title, at: Number(c.at) || 0, messages};
}

// writeChats stores the list, and returns false where the browser refuses.
function writeChats(list) {
  try { localStorage.setItem('vapp.chats', JSON.stringify(list)); return true; } catch { return false; }
}

function dropChat(id) {
  try { localStorage.removeItem('vapp.chat.' + id); } catch { /* nothing is stored then */ }
  writeChats(chatList().filter(c => c.id !== id));
}

// storeChat stores a conversation and returns the titles of those that it removed for it;
// null: the browser did not store it.
function storeChat(c) {
  const text = JSON.stringify({title: c.title, at: c.at, messages: boundImages(c.messages)});
  if (text.length > mostChars) return null;
  const others = chatList().filter(o => o.id !== c.id);
  const list = [{id: c.id, title: c.title, at: c.at, chars: text.length}, ...others].sort((a, b) => b.at - a.at);
  const removed = [];
  const oldest = () => list.findLastIndex(o => o.id !== c.id);
  const remove = i => {
    const [o] = list.splice(i, 1);
    removed.push(o.title);
    dropChat(o.id);
  };
  while (oldest() >= 0 && (list.length > mostChats || list.reduce((n, o) => n + o.chars, 0) > mostChars)) remove(oldest());
  for (;;) {
    try {
      localStorage.setItem('vapp.chat.' + c.id, text);
      if (writeChats(list)) return removed;
    } catch { /* full, or storage is off */ }
    if (oldest() < 0) return null;
    remove(oldest());
  }
}
