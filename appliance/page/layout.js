// The columns and the color scheme. A wide window has the columns next to the chat, and the
// browser keeps which are closed; in a narrow one a column is a drawer, closed at first.
const narrow = {chats: matchMedia('(max-width: 70rem)'), state: matchMedia('(max-width: 52rem)')};

const isOpen = name => narrow[name].matches ? root.dataset.drawer === name : root.dataset[name] !== 'closed';

function expanded() {
  for (const name in narrow) $('show-' + name).setAttribute('aria-expanded', isOpen(name));
}

function panel(name, open) {
  if (narrow[name].matches) {
    root.dataset.drawer = open ? name : '';
  } else {
    root.dataset[name] = open ? 'open' : 'closed';
    keep(name, root.dataset[name]);
  }
  expanded();
}

for (const name in narrow) {
  narrow[name].addEventListener('change', () => { root.dataset.drawer = ''; expanded(); });
  $('show-' + name).addEventListener('click', () => {
    if (narrow[name].matches) settings(false);
    panel(name, !isOpen(name));
  });
}
expanded();

const schemes = ['system', 'light', 'dark'];
function scheme(name) {
  if (name === 'system') delete root.dataset.theme;
  else root.dataset.theme = name;
  $('theme').title = 'Color scheme: ' + name;
  $('theme').setAttribute('aria-label', 'color scheme: ' + name);
}
scheme(root.dataset.theme || 'system');
$('theme').addEventListener('click', () => {
  const next = schemes[(schemes.indexOf(root.dataset.theme || 'system') + 1) % schemes.length];
  scheme(next);
  keep('theme', next);
  say('Color scheme: ' + next + '.');
});
