// Blocks of code: label, copy button, colors.
const mostColored = 50000; // characters; a longer block stays in one color

// language returns the name of a code fence: the first word behind its backticks.
const language = info => info.trim().split(/[\s{,]/)[0].slice(0, 30);

const named = {amp: '&', lt: '<', gt: '>', quot: '"', '#x27': "'"};

// color puts code into an element. The library returns text in which < > & and quotes are
// entities, and <span class="hljs-…"> around it; both become nodes here.
function color(to, code, info) {
  const name = language(info).toLowerCase();
  if (!name || code.length > mostColored || !hljs.getLanguage(name)) { to.textContent = code; return; }
  const out = document.createDocumentFragment();
  const open = [out];
  for (const part of hljs.highlight(code, {language: name, ignoreIllegals: true}).value.split(/(<[^>]*>)/)) {
    const span = /^<span class="([^"]*)">$/.exec(part);
    if (span) open.push(add(open.at(-1), 'span', span[1]));
    else if (part === '</span>') open.pop();
    else if (part) open.at(-1).append(part.replace(/&(amp|lt|gt|quot|#x27);/g, (_, n) => named[n]));
  }
  to.replaceChildren(out);
}

// codeBlock adds a block of code. Its set changes the code, as while a reply streams.
function codeBlock(to, code, info) {
  const block = add(to, 'div', 'code');
  const head = add(block, 'div', 'code-head');
  add(head, 'span', 'lang', language(info) || 'text');
  const b = button(head, 'quiet', 'Copy', () => copy(block.text, b));
  b.setAttribute('aria-label', 'copy the code');
  const pre = add(block, 'pre');
  pre.tabIndex = 0;
  const inside = add(pre, 'code');
  block.set = text => { block.text = text; color(inside, text.replace(/\n$/, ''), info); };
  block.set(code);
  return block;
}
