// Elements. Text reaches the document as text only: nothing here or elsewhere in the page
// interprets HTML, and the Content-Security-Policy refuses a script that would.
const $ = id => document.getElementById(id);
const root = document.documentElement;

const add = (to, tag, cls, text) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  to.append(e);
  return e;
};

function button(to, cls, text, act) {
  const b = add(to, 'button', cls, text);
  b.type = 'button';
  b.addEventListener('click', act);
  return b;
}

// ofTab returns what the tab keeps under a name, '' where nothing is, or the browser keeps nothing.
function ofTab(name) {
  try { return sessionStorage.getItem(name) || ''; } catch { return ''; }
}

// keepInTab stores a text for the tab where the browser allows it.
function keepInTab(name, text) {
  try { sessionStorage.setItem(name, text); } catch { /* storage is off or full */ }
}

// keep stores a choice of the user where the browser allows it.
function keep(name, value) {
  try { localStorage.setItem('vapp.' + name, value); } catch { /* the choice is valid until the page is left */ }
}

// say has a screen reader speak a text after what it speaks now. It adds the text and
// changes nothing that was spoken before.
function say(text) {
  if (text.trim()) add($('said'), 'p', '', text.trim());
}

// toast shows a short text with a button for some seconds.
let fading = 0;
function toast(text, label, act) {
  $('toast-text').textContent = text;
  $('toast-act').hidden = !label;
  $('toast-act').textContent = label || '';
  $('toast-act').onclick = () => {
    $('text').focus();
    $('toast').hidden = true;
    act();
  };
  $('toast').hidden = false;
  clearTimeout(fading);
  fading = setTimeout(fade, 10000);
}

// fade hides the toast, but not while the user is on it.
function fade() {
  if ($('toast').matches(':hover, :focus-within')) fading = setTimeout(fade, 2000);
  else $('toast').hidden = true;
}

// copy puts a text on the clipboard and reports it on the button. A page of plain HTTP from
// another machine has no navigator.clipboard; there the selection is copied.
async function copy(text, b) {
  let done = false;
  if (navigator.clipboard) done = await navigator.clipboard.writeText(text).then(() => true, () => false);
  if (!done) {
    const area = add(document.body, 'textarea', 'unseen');
    area.value = text;
    area.select();
    done = document.execCommand('copy');
    area.remove();
    b.focus();
  }
  const was = b.dataset.label ||= b.textContent;
  b.textContent = done ? 'Copied' : 'Not copied';
  say(b.textContent + '.');
  setTimeout(() => { b.textContent = was; }, 1500);
}
