// What has to be known before the first drawing: the color scheme and the columns that the
// user chose.
(() => {
  const root = document.documentElement;
  const kept = name => { try { return localStorage.getItem('vapp.' + name); } catch { return null; } };
  if (['light', 'dark'].includes(kept('theme'))) root.dataset.theme = kept('theme');
  for (const name of ['chats', 'state']) root.dataset[name] = kept(name) === 'closed' ? 'closed' : 'open';
})();
