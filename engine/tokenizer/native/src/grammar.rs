//! Grammar-constrained decoding on llguidance.
use crate::abi::*;
use crate::budget;
use crate::text::{shared, Shared};
use crate::vocab::{self, Table};
use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use std::ffi::c_void;
use std::sync::Arc;
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// llguidance's view of a tokenizer: the trie of token bytes, and encoding for forced text.
struct Trie {
    trie: TokTrie,
    tok: Arc<Shared>,
}

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, s: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(s, |s| match self.tok.inner().map(|t| t.encode_fast(s, false)) {
            Ok(Ok(e)) => e.get_ids().to_vec(),
            _ => self.trie.greedy_tokenize(s.as_bytes()),
        })
    }
}

pub struct Grammars {
    factory: ParserFactory,
    vocab: usize,
}

fn wrong(e: impl std::fmt::Display) -> Fail {
    fail(Code::Grammar, e.to_string())
}

/// The entries of the trie. Special tokens and ids without a token get a marker that no text can
/// contain.
fn words(table: &Table, size: usize) -> Vec<Vec<u8>> {
    let marked = |text: &[u8]| [&[TokTrie::SPECIAL_TOKEN_MARKER], text].concat();
    (0..size)
        .map(|id| match table.flags.get(id) {
            Some(f) if f & vocab::SPECIAL != 0 => marked(table.token(id)),
            Some(f) if f & vocab::KNOWN != 0 && !table.token(id).is_empty() => table.token(id).to_vec(),
            _ => marked(format!("<[{id}]>").as_bytes()),
        })
        .collect()
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_grammars_new(
    t: *const c_void,
    n_vocab: u32,
    eos: *const u32,
    n_eos: usize,
    out: *mut *mut c_void,
    err: *mut Error,
) -> i32 {
    guard(err, || {
        let tok = shared(t)?;
        let eos = slice(eos, n_eos)?;
        let table = Table::new(tok.inner()?)?;
        if table.join == vocab::Join::Whole {
            return Err(fail(Code::Grammar, "this tokenizer's decoder does not give the bytes of single tokens"));
        }
        let size = table.flags.len().max(n_vocab as usize);
        let first = *eos.first().ok_or_else(|| fail(Code::Grammar, "no end-of-sequence token"))?;
        if let Some(bad) = eos.iter().find(|&&e| e as usize >= size) {
            return Err(fail(Code::Grammar, format!("end-of-sequence id {bad} is outside the vocabulary of {size}")));
        }
        let trie = TokTrie::from(&TokRxInfo::new(size as u32, first), &words(&table, size)).with_eos_tokens(eos);
        let env: TokEnv = Arc::new(Trie { trie, tok });
        let mut factory = ParserFactory::new_simple(&env).map_err(wrong)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        give_handle(out, Grammars { factory, vocab: size });
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_grammars_vocab(g: *const c_void) -> u32 {
    borrow_handle::<Grammars, _>(g).map_or(0, |g| g.vocab as u32)
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_grammars_free(g: *mut c_void) {
    drop_handle::<Grammars, _>(g)
}

fn top_level(kind: &str, src: &str) -> Res<TopLevelGrammar> {
    if kind != "choice" {
        return TopLevelGrammar::from_tagged_str(kind, src).map_err(wrong);
    }
    let list: Vec<String> = serde_json::from_str(src).map_err(|e| wrong(format!("choice: {e}")))?;
    if list.is_empty() {
        return Err(wrong("choice: the list is empty"));
    }
    let quoted: Vec<String> = list.iter().map(|s| serde_json::Value::from(s.as_str()).to_string()).collect();
    Ok(TopLevelGrammar::from_lark(format!("start: {}", quoted.join(" | "))))
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_new(
    g: *const c_void,
    kind: *const u8,
    kind_len: usize,
    src: *const u8,
    src_len: usize,
    out: *mut *mut c_void,
    err: *mut Error,
) -> i32 {
    guard(err, || {
        let g = borrow_handle::<Grammars, _>(g)?;
        let (kind, src) = (text(kind, kind_len)?, text(src, src_len)?);
        // a chain of rules takes one stack frame per rule
        let m = on_stack(budget::STACK, || Counted::new(|| Ok(Matcher::new(g.factory.create_parser(top_level(kind, src)?)))))?;
        match m.matcher.get_error() {
            Some(e) => Err(wrong(e)),
            None => {
                give_handle(out, m);
                Ok(())
            }
        }
    })
}

/// A matcher and its allocated bytes.
struct Counted {
    matcher: Matcher,
    bytes: isize,
}

impl Counted {
    fn new(make: impl FnOnce() -> Res<Matcher>) -> Res<Counted> {
        let before = budget::live();
        let matcher = make()?;
        Ok(Counted { matcher, bytes: budget::live() - before })
    }

    /// Calls f and counts the memory that stays allocated after it.
    fn with<T>(&mut self, f: impl FnOnce(&mut Matcher) -> T) -> T {
        let before = budget::live();
        let out = f(&mut self.matcher);
        self.bytes += budget::live() - before;
        out
    }
}

unsafe fn matcher<'a>(m: *mut c_void) -> Res<&'a mut Counted> {
    m.cast::<Counted>().as_mut().ok_or_else(|| fail(Code::Argument, "null matcher"))
}

/// The allocated bytes of a matcher. Memory shared between a clone and its original counts for the
/// original.
#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_bytes(m: *const c_void) -> usize {
    borrow_handle::<Counted, _>(m).map_or(0, |m| m.bytes.max(0) as usize)
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_clone(m: *mut c_void, out: *mut *mut c_void, err: *mut Error) -> i32 {
    guard(err, || {
        let m = &matcher(m)?.matcher;
        give_handle(out, Counted::new(|| Ok(m.deep_clone()))?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_free(m: *mut c_void) {
    drop_handle::<Counted, _>(m)
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_mask(m: *mut c_void, bits: *mut u32, words: usize, err: *mut Error) -> i32 {
    guard(err, || {
        if bits.is_null() {
            return Err(fail(Code::Argument, "null mask"));
        }
        let out = std::slice::from_raw_parts_mut(bits, words);
        // drop the library's own mask before `with` counts
        matcher(m)?.with(|m| {
            let mask = m.compute_mask_or_eos().map_err(wrong)?;
            let n = mask.len().div_ceil(32);
            if words < n {
                return Err(fail(Code::Argument, format!("the mask needs {n} words, not {words}")));
            }
            out[..n].copy_from_slice(&mask.as_slice()[..n]);
            out[n..].fill(0);
            Ok(())
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_commit(m: *mut c_void, ids: *const u32, n: usize, err: *mut Error) -> i32 {
    guard(err, || {
        let ids = slice(ids, n)?;
        matcher(m)?.with(|m| m.consume_tokens(ids)).map_err(wrong)
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_validate(m: *mut c_void, ids: *const u32, n: usize, accepted: *mut usize, err: *mut Error) -> i32 {
    guard(err, || {
        let ids = slice(ids, n)?;
        accepted.write(matcher(m)?.with(|m| m.validate_tokens(ids)).map_err(wrong)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_forced(m: *mut c_void, out: *mut Buf, err: *mut Error) -> i32 {
    guard(err, || {
        let m = matcher(m)?;
        let ids = m.with(Matcher::compute_ff_tokens);
        out.write(Buf::from_ids(&ids));
        m.with(|_| drop(ids));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_rollback(m: *mut c_void, n: usize, err: *mut Error) -> i32 {
    guard(err, || matcher(m)?.with(|m| m.rollback(n)).map_err(wrong))
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_matcher_state(m: *mut c_void, flags: *mut u32, err: *mut Error) -> i32 {
    guard(err, || {
        let m = matcher(m)?;
        let stopped = m.matcher.stop_reason() != StopReason::NotStopped;
        let accepting = m.with(Matcher::is_accepting).map_err(wrong)?;
        flags.write(accepting as u32 | (stopped as u32) << 1);
        Ok(())
    })
}
