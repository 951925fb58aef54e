//! Encoding in windows: a text of any length needs the memory of one window and its ids.
use crate::abi::*;
use crate::added::Added;
use crate::recipe::Recipe;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokenizers::models::ModelWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{
    Encoding, Model, NormalizedString, Normalizer, OffsetReferential, OffsetType, PostProcessor, PreTokenizedString, PreTokenizer,
    Tokenizer,
};

/// Bytes of a window, and of the longest stretch without a dividing position.
pub const WINDOW: usize = 8 << 10;
pub const LONGEST: usize = 64 << 10;

/// Cache entries of the BPE model longer than SHORT are dropped once they total CACHE bytes.
const SHORT: usize = 16;
const CACHE: usize = 4 << 20;

const NONE: u32 = u32::MAX;

/// The position in a text that is being encoded. All zero is its start.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// The bytes encoded so far.
    at: usize,
    /// The end of the plain text that contains `at`, if known.
    end: usize,
    /// The added token after it, and where the text continues.
    stop: usize,
    scan: usize,
    token: u32,
    /// FOUND, INSIDE, LATER, STARTED and DONE.
    flags: u32,
}

impl Progress {
    pub fn started(&self) -> bool {
        self.flags & STARTED != 0
    }

    /// Marks the whole text as encoded.
    pub fn finish(&mut self) {
        self.flags = STARTED | DONE;
    }
}

const FOUND: u32 = 1; // end, stop, scan and token are known
const INSIDE: u32 = 2; // at is not the start of a plain text
const LATER: u32 = 4; // nor of a plain text after a normalized added token
const STARTED: u32 = 8;
const DONE: u32 = 16;

pub struct Windows {
    recipe: Option<Recipe>,
    raw: Option<Added>,
    normalized: Option<Added>,
    around: Option<(Vec<u32>, Vec<u32>)>,
    cached: AtomicUsize,
}

/// The options of a call: special tokens around the text, special tokens in it as plain text, and
/// the sizes.
#[derive(Clone, Copy)]
pub struct Ask {
    pub add: bool,
    pub plain: bool,
    pub window: usize,
    pub longest: usize,
}

impl Windows {
    pub fn new(t: &Tokenizer, definition: &[u8]) -> Windows {
        let raw = Added::new(t, false, |s| Some(s.to_owned()));
        let normalized = Added::new(t, true, |s| match t.get_normalizer() {
            None => Some(s.to_owned()),
            Some(n) => {
                let mut s = NormalizedString::from(s);
                n.normalize(&mut s).ok()?;
                Some(s.get().to_owned())
            }
        });
        // an invalid definition fails when it is used
        let around = catch_unwind(AssertUnwindSafe(|| around(t))).ok().flatten();
        let usable = |n: &Added, r: &Recipe| n.is_empty() || !n.looks_around() && !r.prepends;
        let recipe = match (&raw, &normalized, &around) {
            (Some(_), Some(n), Some(_)) => Recipe::new(t, definition).filter(|r| usable(n, r)),
            _ => None,
        };
        Windows { recipe, raw, normalized, around, cached: AtomicUsize::new(0) }
    }

    /// Reports whether a long text has dividing positions.
    pub fn divides(&self) -> bool {
        self.recipe.is_some()
    }

    /// Appends the ids of the next window.
    pub fn step(&self, t: &Tokenizer, s: &str, ask: Ask, p: &mut Progress, ids: &mut Vec<u32>) -> Res<()> {
        let (Some(recipe), Some(raw), Some((before, after))) = (&self.recipe, &self.raw, &self.around) else {
            return Err(too_long(s.len(), ask.longest));
        };
        if p.at > s.len() || p.end > s.len() || p.stop > s.len() || p.scan > s.len() || !s.is_char_boundary(p.at) {
            return Err(fail(Code::Argument, "the progress belongs to another text"));
        }
        if p.flags & STARTED == 0 {
            p.flags |= STARTED;
            if ask.add {
                ids.extend(before);
            }
        }
        let start = p.at;
        while p.at < start + ask.window {
            if p.flags & FOUND == 0 {
                p.flags = p.flags & !(INSIDE | LATER) | FOUND;
                (p.end, p.stop, p.scan, p.token) = match raw.next(s, p.at, p.scan, ask.plain) {
                    Some(f) => (f.start.max(p.at), f.stop, f.scan, f.id),
                    None => (s.len(), s.len(), s.len(), NONE),
                };
            }
            if p.at < p.end {
                let from = p.at;
                self.window(t, recipe, s, ask, p, ids)?;
                if p.at == from {
                    return Err(fail(Code::Tokenizer, "a window of the text was not encoded"));
                }
                if p.at < p.end {
                    return Ok(());
                }
            }
            if p.token == NONE {
                if ask.add {
                    ids.extend(after);
                }
                p.flags |= DONE;
                return Ok(());
            }
            ids.push(p.token);
            p.at = p.stop;
            p.flags &= !FOUND;
        }
        Ok(())
    }

    /// Encodes a window of the plain text from p.at on, more if the window has no dividing
    /// position.
    fn window(&self, t: &Tokenizer, recipe: &Recipe, s: &str, ask: Ask, p: &mut Progress, ids: &mut Vec<u32>) -> Res<()> {
        let rest = &s[p.at..p.end];
        let mut size = ask.window;
        loop {
            let mut cut = rest.len();
            if size < cut {
                cut = (1..=size).rev().find(|i| rest.is_char_boundary(*i) && recipe.begins(&rest[*i..])).unwrap_or(0);
            }
            if cut > 0 && self.part(t, recipe, rest, cut, ask, p, ids)? {
                return Ok(());
            }
            if size >= ask.longest {
                return Err(too_long(rest.len(), ask.longest));
            }
            size = (2 * size).min(ask.longest);
        }
    }

    /// Encodes rest[..cut], or the part of it that the following text cannot change; false if that
    /// part is empty.
    fn part(&self, t: &Tokenizer, recipe: &Recipe, rest: &str, cut: usize, ask: Ask, p: &mut Progress, ids: &mut Vec<u32>) -> Res<bool> {
        let normalizer = match p.flags & INSIDE {
            _ if recipe.normalized(&rest[..cut]) => None,
            0 => t.get_normalizer(),
            _ => recipe.normalizer_inside.as_ref(),
        };
        let text = normalize(normalizer, &rest[..cut])?;
        let last = cut == rest.len();
        let n = text.get();
        let added = self.normalized.as_ref().filter(|a| !a.is_empty());
        // text after sure may be the start of an added token
        let sure = match added {
            Some(a) if !last => (0..=n.len().saturating_sub(a.longest)).rev().find(|i| n.is_char_boundary(*i)).unwrap_or(0),
            _ => n.len(),
        };
        let mut out = Part { done: 0, inner: p.flags & LATER != 0, ids: vec![] };
        let place = |d: usize| place(normalizer, recipe, rest, &text, d);
        let (mut at, mut scan) = (0, 0);
        loop {
            let found = added.and_then(|a| a.next(n, at, scan, ask.plain));
            let (end, ends) = found.as_ref().map_or((n.len(), last), |f| (f.start, true));
            if end > at {
                let first = p.at == 0 && at == 0;
                let pre = match () {
                    _ if out.inner => recipe.inside.as_ref(),
                    _ if first => t.get_pre_tokenizer(),
                    _ => recipe.later.as_ref(),
                };
                let limit = if ends && end <= sure { end } else { end.min(sure) };
                let stretch = Stretch { text: &n[at..end], at, seen: limit.saturating_sub(at), ends: ends && end <= sure };
                let whole = self.plain(t, recipe, pre, stretch, &place, &mut out)?;
                if !whole {
                    break;
                }
            }
            let Some(f) = found else { break };
            if f.start > sure {
                break;
            }
            out.ids.push(f.id);
            (out.done, out.inner) = (f.stop, false);
            (at, scan) = (f.stop, f.scan);
        }
        // the end of the encoded part in the original text
        let raw = match out.done {
            _ if last => rest.len(),
            0 => return Ok(false),
            d => match place(d)? {
                Some(r) => r,
                None => return Ok(false),
            },
        };
        ids.append(&mut out.ids);
        p.at += raw;
        p.flags = (p.flags | INSIDE) & !LATER | if out.inner { LATER } else { 0 };
        Ok(true)
    }

    /// Encodes a stretch, or the part of it that cannot change and ends at a dividing position.
    /// Returns whether that was all.
    fn plain(&self, t: &Tokenizer, recipe: &Recipe, pre: Option<&PreTokenizerWrapper>, s: Stretch, place: &Place, out: &mut Part) -> Res<bool> {
        let mut parts = split(pre, s.text)?;
        let mut splits = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let mut done = s.text.len();
        if !s.ends {
            let seen = &s.text[..s.seen];
            let space = recipe.space && !out.inner;
            let mut keep = 0;
            while keep + 1 < splits.len() {
                let ((start, end), (next, _)) = (splits[keep].1, splits[keep + 1].1);
                if next >= seen.len() || !recipe.decided(&seen[start..], end - start, next - start, space && keep == 0) {
                    break;
                }
                keep += 1;
            }
            while keep > 0 && place(s.at + splits[keep].1 .0)?.is_none() {
                keep -= 1;
            }
            if keep > 0 {
                done = splits[keep].1 .0;
                splits.truncate(keep);
            } else {
                let Some(d) = recipe.between(seen) else { return Ok(false) };
                if place(s.at + d)?.is_none() {
                    return Ok(false);
                }
                done = d;
                parts = split(pre, &s.text[..d])?;
                splits = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
            }
        }
        for (s, _, _) in splits {
            self.tokens(t, s, &mut out.ids)?;
        }
        (out.done, out.inner) = (s.at + done, true);
        Ok(s.ends)
    }

    /// Appends the ids of one pre-token.
    fn tokens(&self, t: &Tokenizer, s: &str, ids: &mut Vec<u32>) -> Res<()> {
        ids.extend(t.get_model().tokenize(s).map_err(wrong)?.into_iter().map(|t| t.id));
        self.cached(t, s.len());
        Ok(())
    }

    /// Limits the model's cache of words, whose entries may have 32 bytes for each byte of a word.
    fn cached(&self, t: &Tokenizer, bytes: usize) {
        if bytes > SHORT && bytes < 256 && self.cached.fetch_add(33 * bytes, Ordering::Relaxed) > CACHE {
            self.cached.store(0, Ordering::Relaxed);
            if let ModelWrapper::BPE(m) = t.get_model() {
                m.clear_cache();
            }
        }
    }
}

/// A normalized text between added tokens, as far as it is in the window.
struct Stretch<'a> {
    text: &'a str,
    at: usize, // in the window
    /// Bytes of text that cannot change any more.
    seen: usize,
    /// Nothing follows text.
    ends: bool,
}

/// Maps a position in the window's normalized text to the original text, if the text can be divided
/// there.
type Place<'a> = dyn Fn(usize) -> Res<Option<usize>> + 'a;

/// The encoded part of a window.
struct Part {
    done: usize, // in the normalized text
    inner: bool, // done is not the start of a plain text
    ids: Vec<u32>,
}

fn split(pre: Option<&PreTokenizerWrapper>, s: &str) -> Res<PreTokenizedString> {
    let mut parts = PreTokenizedString::from(s);
    if let Some(pre) = pre {
        pre.pre_tokenize(&mut parts).map_err(wrong)?;
    }
    Ok(parts)
}

fn wrong(e: impl std::fmt::Display) -> Fail {
    fail(Code::Tokenizer, e.to_string())
}

fn too_long(bytes: usize, longest: usize) -> Fail {
    let text = format!("a text of {bytes} bytes cannot be divided within {longest} bytes");
    fail(Code::Length, text)
}

fn normalize(n: Option<&tokenizers::NormalizerWrapper>, s: &str) -> Res<NormalizedString> {
    let mut out = NormalizedString::from(s);
    if let Some(n) = n {
        n.normalize(&mut out).map_err(wrong)?;
    }
    Ok(out)
}

/// Maps position d of the normalized text to rest, if the text can be divided there.
fn place(n: Option<&tokenizers::NormalizerWrapper>, recipe: &Recipe, rest: &str, text: &NormalizedString, d: usize) -> Res<Option<usize>> {
    if n.is_none() {
        return Ok(recipe.begins(&rest[d..]).then_some(d));
    }
    let Some(r) = text.convert_offsets(tokenizers::normalizer::Range::Normalized(d..text.len())) else { return Ok(None) };
    let at = r.start;
    if at == 0 || at >= rest.len() || !rest.is_char_boundary(at) || !recipe.begins(&rest[at..]) {
        return Ok(None);
    }
    let same = normalize(n, &rest[..at])?.get() == &text.get()[..d];
    Ok(same.then_some(at))
}

/// The ids that the post-processor adds before and after a text.
fn around(t: &Tokenizer) -> Option<(Vec<u32>, Vec<u32>)> {
    let one: Encoding = std::iter::once((NONE, String::new(), (0, 0), None, 0)).collect();
    let out = match t.get_post_processor() {
        None => return Some((vec![], vec![])),
        Some(p) => p.process(one, None, true).ok()?,
    };
    let ids = out.get_ids();
    let at = ids.iter().position(|i| *i == NONE)?;
    (ids.iter().filter(|i| **i == NONE).count() == 1).then(|| (ids[..at].to_vec(), ids[at + 1..].to_vec()))
}
