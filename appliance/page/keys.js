// Keys. Every one of them is in the list that ? opens.
$('show-help').addEventListener('click', () => $('help').showModal());
$('close-help').addEventListener('click', () => $('help').close());

$('text').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
  if (e.key === 'ArrowUp' && !$('text').value && !attached.length && !running) {
    const last = [...$('log').querySelectorAll('.message.user .edit')].at(-1);
    if (last) { e.preventDefault(); last.click(); }
  }
});

// escape stops the reply, or closes what is open.
function escape() {
  if (running) stop();
  else if (!$('settings').hidden) closeSettings();
  else if (root.dataset.drawer) { const name = root.dataset.drawer; panel(name, false); $('show-' + name).focus(); }
}

document.addEventListener('keydown', e => {
  if ($('help').open || $('picture').open) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (e.key === 'Escape') escape();
  else if (e.altKey && e.code === 'KeyN') { e.preventDefault(); fresh(); }
  else if (e.altKey && e.code === 'KeyC') { e.preventDefault(); $('show-chats').click(); }
  else if (e.altKey && e.code === 'KeyS') { e.preventDefault(); $('show-state').click(); }
  else if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
  else if (e.key === '/') { e.preventDefault(); root.dataset.drawer = ''; expanded(); $('text').focus(); }
  else if (e.key === '?') { e.preventDefault(); $('help').showModal(); }
});
$('text').focus();
