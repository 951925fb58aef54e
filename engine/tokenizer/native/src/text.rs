//! Tokenizer: load, encode and decode texts given with their length, so that NUL bytes are allowed.
use crate::abi::*;
use crate::daulet::UnifiedTokenizer;
use crate::vocab::Table;
use crate::windows::{Ask, Progress, Windows, LONGEST, WINDOW};
use std::ffi::c_void;
use std::sync::Arc;
use tokenizers::{AddedVocabulary, Encoding, Model, OffsetType, PreTokenizer, Tokenizer};

/// A tokenizer. Its handle is an Arc's pointer. Since tok is the first field, daulet's C functions
/// accept it too.
#[repr(C)]
pub struct Shared {
    tok: UnifiedTokenizer,
    /// The added vocabulary that treats a special token's text as plain text.
    plain: AddedVocabulary,
    windows: Windows,
}

impl Shared {
    pub fn inner(&self) -> Res<&Tokenizer> {
        match &self.tok {
            UnifiedTokenizer::HuggingFace(t) => Ok(t),
            _ => Err(fail(Code::Argument, "not a tokenizer.json tokenizer")),
        }
    }

    fn encode(&self, s: &str, special: Special) -> Result<Encoding, tokenizers::Error> {
        let t = self.inner().map_err(|e| e.text)?;
        if special.parse {
            return t.encode_fast(s, special.add);
        }
        let mut parts = self.plain.extract_and_normalize(t.get_normalizer(), s);
        if let Some(p) = t.get_pre_tokenizer() {
            p.pre_tokenize(&mut parts)?;
        }
        parts.tokenize(|n| t.get_model().tokenize(n.get()))?;
        t.post_process(parts.into_encoding(None, 0, OffsetType::None)?, None, special.add)
    }
}

/// The handling of special tokens in encoding: add those of the post-processor, parse those in the
/// text.
#[derive(Clone, Copy)]
struct Special {
    add: bool,
    parse: bool,
    once: bool,
}

pub unsafe fn shared(p: *const c_void) -> Res<Arc<Shared>> {
    if p.is_null() {
        return Err(fail(Code::Argument, "null tokenizer"));
    }
    Arc::increment_strong_count(p.cast::<Shared>());
    Ok(Arc::from_raw(p.cast()))
}

unsafe fn borrowed<'a>(p: *const c_void) -> Res<&'a Tokenizer> {
    borrow_handle::<Shared, _>(p)?.inner()
}

fn wrong(e: impl std::fmt::Display) -> Fail {
    fail(Code::Tokenizer, e.to_string())
}

/// # Safety
/// As in vapptext.h; the same holds for every function of this ABI.
#[no_mangle]
pub unsafe extern "C" fn vapptext_tokenizer_new(json: *const u8, n: usize, out: *mut *const c_void, err: *mut Error) -> i32 {
    guard(err, || {
        let mut t = Tokenizer::from_bytes(slice(json, n)?).map_err(wrong)?;
        // as transformers does before every call that does not ask for them
        t.with_truncation(None).map_err(wrong)?;
        t.with_padding(None);
        t.set_encode_special_tokens(false);
        let mut plain = t.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        let windows = Windows::new(&t, slice(json, n)?);
        out.write(Arc::into_raw(Arc::new(Shared { tok: UnifiedTokenizer::HuggingFace(t), plain, windows })).cast());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_tokenizer_free(t: *const c_void) {
    if !t.is_null() {
        drop(Arc::from_raw(t.cast::<Shared>()));
    }
}

/// special: bit 0 adds the post-processor's tokens, bit 1 encodes special tokens in the text as
/// plain text, bit 2 encodes the whole text at once. window is 0 for the default size.
#[no_mangle]
pub unsafe extern "C" fn vapptext_encode(t: *const c_void, s: *const u8, n: usize, special: u32, window: usize, p: *mut Progress, out: *mut Buf, err: *mut Error) -> i32 {
    guard(err, || {
        let (t, p) = (borrow_handle::<Shared, _>(t)?, p.as_mut().ok_or_else(|| fail(Code::Argument, "null progress"))?);
        // the first call has checked that it is UTF-8
        let s = if p.started() { std::str::from_utf8_unchecked(slice(s, n)?) } else { text(s, n)? };
        let (window, longest) = if window == 0 { (WINDOW, LONGEST) } else { (window, LONGEST.max(window)) };
        let special = Special { add: special & 1 != 0, parse: special & 2 == 0, once: special & 4 != 0 };
        if !p.started() && (special.once || n <= window || !t.windows.divides() && n <= longest) {
            let e = t.encode(s, special).map_err(wrong)?;
            p.finish();
            out.write(Buf::from_ids(e.get_ids()));
            return Ok(());
        }
        let mut ids = vec![];
        t.windows.step(t.inner()?, s, Ask { add: special.add, plain: !special.parse, window, longest }, p, &mut ids)?;
        out.write(Buf::from_ids(&ids));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_decode(t: *const c_void, ids: *const u32, n: usize, skip_special: bool, out: *mut Buf, err: *mut Error) -> i32 {
    guard(err, || {
        let s = borrowed(t)?.decode(slice(ids, n)?, skip_special).map_err(wrong)?;
        out.write(Buf::new(s.into_bytes()));
        Ok(())
    })
}

#[repr(C)]
pub struct CTable {
    join: u32,
    strip: u32,
    flags: Buf,
    ends: Buf,
    bytes: Buf,
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_table(t: *const c_void, out: *mut CTable, err: *mut Error) -> i32 {
    guard(err, || {
        let t = Table::new(borrowed(t)?)?;
        out.write(CTable {
            join: t.join as u32,
            strip: t.strip,
            flags: Buf::new(t.flags),
            ends: Buf::from_ids(&t.ends),
            bytes: Buf::new(t.bytes),
        });
        Ok(())
    })
}

/// The id of a token in the vocabulary's own spelling, -1 if there is none.
#[no_mangle]
pub unsafe extern "C" fn vapptext_token_id(t: *const c_void, s: *const u8, n: usize) -> i64 {
    let mut id = -1;
    guard(std::ptr::null_mut(), || {
        id = borrowed(t)?.token_to_id(text(s, n)?).map_or(-1, i64::from);
        Ok(())
    });
    id
}

/// The vocabulary's own spelling of an id.
#[no_mangle]
pub unsafe extern "C" fn vapptext_token_text(t: *const c_void, id: u32, out: *mut Buf, err: *mut Error) -> i32 {
    guard(err, || {
        let s = borrowed(t)?.id_to_token(id).ok_or_else(|| fail(Code::Argument, format!("no token has the id {id}")))?;
        out.write(Buf::new(s.into_bytes()));
        Ok(())
    })
}
