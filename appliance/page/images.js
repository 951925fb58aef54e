// The images of messages. An image is {name, url, kept, reduced}: url is what the server gets
// and kept what the browser stores, both data: URLs; reduced: url is a smaller copy of the
// file. An image of a stored conversation that was not kept has no url.
const mostRead = 64 << 20; // bytes of a file
const mostSent = 3 << 20; // bytes of a file that is sent as it is; a larger one is sent smaller
const sentSide = 3072; // pixels of the longer side of a smaller copy
const keptSides = [1280, 640, 320]; // the same of the copy that is stored, the first that fits

let attached = []; // the images of the message field
let imageLimit = null; // images of a conversation; 0: the model takes none; null: not known yet
let bodyLimit = 0; // bytes of a request; 0: not known yet
let reading = Promise.resolve(); // ends when the chosen files are read

const marks = {png: /^\x89PNG\r\n\x1a\n/, jpeg: /^\xff\xd8\xff/, gif: /^GIF8[79]a/, webp: /^RIFF.{4}WEBP/s, bmp: /^BM/, tiff: /^(II\*\0|MM\0\*)/};

// quote returns a file's name for a text: at most 60 characters, and none that is not seen.
function quote(name) {
  const seen = name.replace(/[\p{Cc}\p{Cf}]/gu, '') || 'image';
  return seen.length > 60 ? seen.slice(0, 40) + '…' + seen.slice(-19) : seen;
}

// toURL returns the data: URL of a blob.
const toURL = blob => new Promise((done, fail) => {
  const r = new FileReader();
  r.onload = () => done(r.result);
  r.onerror = () => fail(r.error);
  r.readAsDataURL(blob);
});

// smaller returns a JPEG of a bitmap whose longer side has at most that many pixels, on white.
function smaller(bitmap, side) {
  const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(scale * bitmap.width));
  canvas.height = Math.max(1, Math.round(scale * bitmap.height));
  const c = canvas.getContext('2d');
  c.fillStyle = '#fff';
  c.fillRect(0, 0, canvas.width, canvas.height);
  c.imageSmoothingQuality = 'high';
  c.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/jpeg', .9);
}

// readImage returns the image of a file. Its first bytes say what it is, not its name. Only
// some browsers can show TIFF; the server reads it.
async function readImage(file) {
  const name = quote(file.name);
  const head = await file.slice(0, 12).arrayBuffer().catch(() => { throw new Error('“' + name + '” cannot be read.'); });
  const text = String.fromCharCode(...new Uint8Array(head));
  const kind = Object.keys(marks).find(k => marks[k].test(text));
  if (!kind) throw new Error('“' + name + '” is no image: PNG, JPEG, WebP, GIF, BMP and TIFF are taken.');
  if (file.size > mostRead) throw new Error('“' + name + '” has ' + size(file.size) + ', at most ' + size(mostRead) + ' are taken.');
  const blob = new Blob([file], {type: 'image/' + kind});
  const bitmap = await createImageBitmap(blob).catch(() => null);
  if (!bitmap && kind !== 'tiff') throw new Error('“' + name + '” is damaged or too large: this browser cannot read it.');
  if (!bitmap && file.size > mostSent) throw new Error('“' + name + '” has ' + size(file.size) + ', and this browser cannot make it smaller; at most ' + size(mostSent) + ' are taken.');
  const reduced = file.size > mostSent;
  const url = reduced ? smaller(bitmap, sentSide) : await toURL(blob);
  let kept = url;
  for (const side of bitmap ? keptSides : []) if (kept.length > mostImageChars) kept = smaller(bitmap, side);
  bitmap?.close();
  return {name, url, kept, reduced};
}

// imagesIn counts the images that messages send.
const imagesIn = messages => messages.reduce((n, m) => n + (m.images || []).filter(p => p.url).length, 0);

// tooMany returns why that many images cannot be sent, '' if they can.
function tooMany(n) {
  if (!n || imageLimit === null || n <= imageLimit) return '';
  if (!imageLimit) return 'The served model takes no images.';
  return 'At most ' + imageLimit + (imageLimit === 1 ? ' image fits' : ' images fit') + ' in a conversation with this model.';
}

// tooLarge returns why a request of that many bytes cannot be sent, '' if it can.
function tooLarge(bytes) {
  if (!bodyLimit || bytes <= bodyLimit) return '';
  return 'a request would have ' + size(bytes) + ' with all images of the conversation, and this server takes at most ' + size(bodyLimit) + ' (serve.limits.maxBodyBytes).';
}

// attach reads files into the message field, and says why one is not taken.
function attach(files) {
  const list = [...files];
  reading = reading.then(async () => {
    refuse('');
    for (const f of list) {
      const before = chat.messages.at(-1)?.role === 'user' ? chat.messages.slice(0, -1) : chat.messages; // an unanswered message is replaced
      const why = imageLimit === null ? 'The server has not said yet whether it takes images.' : tooMany(imagesIn(before) + attached.length + 1);
      if (why) { refuse(why); break; }
      try {
        const p = await readImage(f);
        const large = tooLarge([...before.flatMap(m => m.images || []), ...attached, p].reduce((n, q) => n + (q.url || '').length, 0));
        if (large) throw new Error('“' + p.name + '” is too large: ' + large);
        attached.push(p);
      } catch (e) { refuse(e.message); }
    }
    showAttached();
    $('text').focus();
  });
}

function refuse(why) {
  $('refused').textContent = why;
  $('refused').hidden = !why;
}

// showAttached shows the images of the message field, which can be removed.
function showAttached() {
  $('images').hidden = !attached.length;
  $('images').replaceChildren();
  pictures($('images'), attached, p => {
    attached = attached.filter(q => q !== p);
    refuse('');
    showAttached();
    ($('images').querySelector('.remove') || $('text')).focus();
  });
}

// pictures adds images to a list, with a button that removes one where remove is given.
function pictures(to, list, remove) {
  for (const p of list) {
    const li = add(to, 'li');
    if (p.url) {
      const b = button(li, 'picture', '', () => enlarge(p));
      b.setAttribute('aria-label', 'show ' + p.name);
      b.title = p.name;
      const img = add(b, 'img');
      img.alt = p.name;
      img.addEventListener('error', () => { b.textContent = p.name; b.disabled = true; });
      source(img, p.kept || p.url);
    } else {
      add(li, 'span', 'picture', p.name);
    }
    const note = !p.url ? 'not kept, not sent' : p.reduced ? 'smaller copy' : '';
    if (note) add(li, 'span', 'note', note);
    if (remove) button(li, 'remove', '×', () => remove(p)).setAttribute('aria-label', 'remove ' + p.name);
  }
}

// source sets what an image element shows. Nothing else in the page does: only pixels as a
// data: URL of an image that is no document (SVG is one) get there.
function source(img, url) {
  if (imageURL.test(url)) img.src = url;
}

// enlarge shows an image in a dialog.
function enlarge(p) {
  $('picture-name').textContent = p.name;
  $('picture-image').alt = p.name;
  source($('picture-image'), p.url);
  $('picture').showModal();
}
$('picture').addEventListener('click', () => $('picture').close());

// contentOf returns a message's content in the API's form: images come before the text.
function contentOf(m) {
  const images = (m.images || []).filter(p => p.url);
  if (!images.length) return m.content;
  return [...images.map(p => ({type: 'image_url', image_url: {url: p.url}})), ...m.content ? [{type: 'text', text: m.content}] : []];
}

// takesImages shows what the server's limit allows.
function takesImages(limit) {
  imageLimit = limit;
  $('attach').hidden = !limit;
  $('with-images').hidden = !limit;
}

$('attach').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', () => { attach($('file').files); $('file').value = ''; });
const hasFiles = e => !!e.dataTransfer && e.dataTransfer.types.includes('Files');
const dropping = yes => document.body.classList.toggle('dropping', yes);
addEventListener('dragover', e => {
  if (!hasFiles(e)) return;
  e.preventDefault();
  dropping(true);
});
addEventListener('dragleave', e => { if (!e.relatedTarget) dropping(false); });
addEventListener('drop', e => {
  if (!hasFiles(e)) return;
  e.preventDefault();
  dropping(false);
  attach(e.dataTransfer.files);
});
// A paste that has a text, as from a spreadsheet, is the text.
addEventListener('paste', e => {
  const data = e.clipboardData;
  if (!data?.files.length || data.types.includes('text/plain')) return;
  e.preventDefault();
  attach(data.files);
});
