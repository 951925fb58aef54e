//! The bytes of every token: the result of the tokenizer's decoder for a single token.
use crate::abi::*;
use serde_json::Value as Json;
use tokenizers::Tokenizer;

/// How the decoder joins tokens, as far as a streaming decoder needs it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Join {
    /// Bytes are concatenated, then read as UTF-8 (ByteLevel).
    Bytes = 1,
    /// Text is concatenated; a run of byte tokens is UTF-8 as a whole or one U+FFFD per byte (ByteFallback).
    Fallback = 2,
    /// Other decoders: only whole sequences can be decoded.
    Whole = 3,
}

pub const KNOWN: u8 = 1;
pub const SPECIAL: u8 = 2;
pub const BYTE: u8 = 4;
pub const ADDED: u8 = 8;

/// The table of all ids 0..=highest id. The bytes of token i are bytes[ends[i-1]..ends[i]].
pub struct Table {
    pub join: Join,
    /// Spaces that the decoder strips at the very start of a text.
    pub strip: u32,
    pub flags: Vec<u8>,
    pub ends: Vec<u32>,
    pub bytes: Vec<u8>,
}

impl Table {
    pub fn token(&self, id: usize) -> &[u8] {
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.bytes[start..self.ends[id] as usize]
    }

    pub fn new(tok: &Tokenizer) -> Res<Table> {
        let shape = Shape::of(tok)?;
        let mut vocab: Vec<(u32, String)> = tok.get_vocab(true).into_iter().map(|(t, i)| (i, t)).collect();
        vocab.sort_unstable();
        let size = match vocab.last() {
            Some((id, _)) => *id as usize + 1,
            None => return Err(fail(Code::Tokenizer, "the vocabulary is empty")),
        };
        // ids far beyond the number of tokens would make the table huge
        if size > 4 * vocab.len() + (1 << 20) {
            return Err(fail(Code::Tokenizer, format!("token id {} in a vocabulary of {} tokens", size - 1, vocab.len())));
        }
        let added = tok.get_added_vocabulary();
        let mut t = Table { join: shape.join, strip: shape.strip, flags: vec![0; size], ends: Vec::with_capacity(size), bytes: Vec::new() };
        for id in 0..size {
            if let Some(text) = tok.id_to_token(id as u32) {
                t.flags[id] = KNOWN;
                if added.is_special_token(&text) {
                    t.flags[id] |= SPECIAL;
                }
                if added.get_added_tokens_decoder().contains_key(&(id as u32)) {
                    t.flags[id] |= ADDED;
                }
                if shape.push(&text, &mut t.bytes) {
                    t.flags[id] |= BYTE;
                }
            }
            t.ends.push(u32::try_from(t.bytes.len()).map_err(|_| fail(Code::Tokenizer, "the tokens' text is over 4 GiB"))?);
        }
        Ok(t)
    }
}

/// The parts of a decoder that act on single tokens.
struct Shape {
    join: Join,
    strip: u32,
    replace: Vec<(String, String)>,
}

impl Shape {
    fn of(tok: &Tokenizer) -> Res<Shape> {
        let decoder = match tok.get_decoder() {
            Some(d) => serde_json::to_value(d).map_err(|e| fail(Code::Tokenizer, format!("decoder: {e}")))?,
            None => Json::Null,
        };
        let steps: Vec<&Json> = match decoder["decoders"].as_array() {
            Some(list) => list.iter().collect(),
            None => vec![&decoder],
        };
        Ok(Shape::read(&steps).unwrap_or(Shape { join: Join::Whole, strip: 0, replace: Vec::new() }))
    }

    /// None for a decoder that needs more than one token at a time.
    fn read(steps: &[&Json]) -> Option<Shape> {
        if let [one] = steps {
            if one["type"] == "ByteLevel" {
                return Some(Shape { join: Join::Bytes, strip: 0, replace: Vec::new() });
            }
        }
        let mut s = Shape { join: Join::Whole, strip: 0, replace: Vec::new() };
        let mut fused = false;
        for step in steps {
            match step["type"].as_str()? {
                "Replace" if s.join == Join::Whole => {
                    s.replace.push((step["pattern"]["String"].as_str()?.into(), step["content"].as_str()?.into()));
                }
                "ByteFallback" if s.join == Join::Whole => s.join = Join::Fallback,
                "Fuse" if s.join == Join::Fallback => fused = true,
                "Strip" if fused && s.strip == 0 && step["content"] == " " && step["stop"] == 0 => s.strip = step["start"].as_u64()? as u32,
                _ => return None,
            }
        }
        fused.then_some(s)
    }

    /// Appends the token's bytes; true if it is a byte token of the fallback kind.
    fn push(&self, token: &str, out: &mut Vec<u8>) -> bool {
        match self.join {
            Join::Bytes => push_byte_level(token, out),
            Join::Fallback => {
                let mut text = token.to_string();
                for (from, to) in &self.replace {
                    text = text.replace(from, to);
                }
                if let Some(b) = fallback_byte(&text) {
                    out.push(b);
                    return true;
                }
                out.extend_from_slice(text.as_bytes());
            }
            Join::Whole => out.extend_from_slice(token.as_bytes()),
        }
        false
    }
}

/// <0xE4> is the byte 0xE4.
fn fallback_byte(t: &str) -> Option<u8> {
    let hex = t.strip_prefix("<0x")?.strip_suffix('>')?;
    (t.len() == 6).then(|| u8::from_str_radix(hex, 16).ok())?
}

/// A token whose characters all represent bytes (GPT-2's table) stands for these bytes; any other
/// token stands for its own text.
fn push_byte_level(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match byte_of(c) {
            Some(b) => out.push(b),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// GPT-2's byte alphabet: printable Latin-1 represents itself, the 68 other bytes are U+0100 and
/// up, in order.
const ALPHABET: [i16; 0x144] = {
    let mut table = [-1i16; 0x144];
    let (mut b, mut next) = (0, 0x100);
    while b < 256 {
        if matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            table[b] = b as i16;
        } else {
            table[next] = b as i16;
            next += 1;
        }
        b += 1;
    }
    table
};

fn byte_of(c: char) -> Option<u8> {
    u8::try_from(*ALPHABET.get(c as usize)?).ok()
}
