// Markdown as elements. The library parses a text to tokens; each token becomes an element
// of the list below or text. Raw HTML is text, links lead to http and https only, and
// images are links.
const markdown = markdownit({html: false, linkify: true, breaks: true});
markdown.linkify.set({fuzzyLink: false, fuzzyEmail: false});
markdown.validateLink = url => webLink(url) !== '';

const elements = {
  paragraph: 'p', blockquote: 'blockquote', bullet_list: 'ul', ordered_list: 'ol', list_item: 'li',
  thead: 'thead', tbody: 'tbody', tr: 'tr', th: 'th', td: 'td', strong: 'strong', em: 'em', s: 's',
};

// webLink returns an absolute address of http or https, '' for everything else.
function webLink(url) {
  if (!/^https?:\/\//i.test(url)) return '';
  try {
    const u = new URL(url);
    return u.protocol === 'http:' || u.protocol === 'https:' ? u.href : '';
  } catch { return ''; }
}

function link(to, url) {
  const href = webLink(url);
  if (!href) return add(to, 'span');
  const a = add(to, 'a');
  a.href = a.title = href;
  a.target = '_blank';
  a.rel = 'noopener noreferrer';
  return a;
}

// opened adds the element that a token opens and returns where its contents belong.
function opened(to, t) {
  const kind = t.type.slice(0, -'_open'.length);
  if (t.hidden) return to;
  if (kind === 'link') return link(to, t.attrGet('href') || '');
  if (kind === 'heading') return add(to, 'h' + Math.min(6, Number(t.tag[1]) + 2));
  if (kind === 'table') {
    const box = add(to, 'div', 'table');
    box.tabIndex = 0;
    return add(box, 'table');
  }
  if (!Object.hasOwn(elements, kind)) return to;
  const e = add(to, elements[kind]);
  if (kind === 'ordered_list' && t.attrGet('start')) e.start = Number(t.attrGet('start'));
  const align = /^text-align:(right|center)$/.exec(t.attrGet('style') || '');
  if (align) e.className = align[1];
  return e;
}

function leaf(to, t) {
  if (t.type === 'softbreak' || t.type === 'hardbreak') add(to, 'br');
  else if (t.type === 'hr') add(to, 'hr');
  else if (t.type === 'code_inline') add(to, 'code', '', t.content);
  else if (t.type === 'fence' || t.type === 'code_block') codeBlock(to, t.content, t.info);
  else if (t.type === 'image') link(to, t.attrGet('src') || '').append('image' + (t.content ? ': ' + t.content : ''));
  else to.append(t.content);
}

function build(to, tokens) {
  const open = [to];
  for (const t of tokens) {
    if (t.type === 'inline') build(open.at(-1), t.children);
    else if (t.nesting > 0) open.push(opened(open.at(-1), t));
    else if (t.nesting < 0) open.pop();
    else leaf(open.at(-1), t);
  }
}

// parts returns the blocks of a text, each with its source and its tokens.
function parts(text, env) {
  const lines = text.split('\n');
  const out = [];
  let tokens = [];
  for (const t of markdown.parse(text, env)) {
    tokens.push(t);
    if (t.level || t.nesting > 0) continue;
    out.push({tokens, source: lines.slice(...tokens[0].map).join('\n')});
    tokens = [];
  }
  return out;
}

// writer returns a function that shows a growing text in an element. It builds again only
// the blocks whose source changed: of a streamed reply the last one, and of a block of
// code only the code.
function writer(to) {
  let shown = [];
  return (text, complete) => {
    const env = {};
    const now = parts(text.replace(/\r\n?/g, '\n'), env);
    // A definition of a link changes blocks before it.
    if (complete && Object.keys(env.references || {}).length) { shown = []; to.replaceChildren(); }
    now.forEach((p, i) => {
      const was = shown[i];
      if (was && was.source === p.source) { p.node = was.node; return; }
      const [t] = p.tokens;
      if (was && t.type === 'fence' && was.tokens[0].type === 'fence' && was.tokens[0].info === t.info) {
        p.node = was.node;
        p.node.set(t.content);
        return;
      }
      const box = document.createElement('div');
      build(box, p.tokens);
      p.node = box.firstChild || box;
      if (was && was.node.parentNode === to) was.node.replaceWith(p.node);
      else to.append(p.node);
    });
    while (to.childNodes.length > now.length) to.lastChild.remove();
    shown = now;
    return now.map(p => p.node);
  };
}
