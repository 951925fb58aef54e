//! The places of added tokens in a text, found one after the other.
use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;
use std::sync::LazyLock;
use tokenizers::{AddedToken, Tokenizer};

static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\w").unwrap());

fn word(c: Option<char>) -> bool {
    c.is_some_and(|c| WORD.is_match(c.encode_utf8(&mut [0; 4])))
}

/// The added tokens that are looked for in the text as it is, or those in the normalized text.
pub struct Added {
    find: AhoCorasick,
    tokens: Vec<(u32, AddedToken)>,
    /// Bytes of the longest one.
    pub longest: usize,
}

/// A token's place, with the white space that it takes.
pub struct Found {
    pub id: u32,
    pub start: usize,
    pub stop: usize,
    /// Where the search goes on.
    pub scan: usize,
}

impl Added {
    /// texts are the tokens as they are searched for.
    pub fn new(t: &Tokenizer, normalized: bool, text: impl Fn(&str) -> Option<String>) -> Option<Added> {
        let mut tokens: Vec<(u32, AddedToken)> = t.get_added_tokens_decoder().into_iter().filter(|(_, a)| a.normalized == normalized).collect();
        tokens.sort_by_key(|(id, _)| *id);
        let texts = tokens.iter().map(|(_, a)| text(&a.content)).collect::<Option<Vec<_>>>()?;
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let find = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts).ok()?;
        Some(Added { find, tokens, longest })
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Reports whether the tokens' places depend on the text around them.
    pub fn looks_around(&self) -> bool {
        self.tokens.iter().any(|(_, a)| a.single_word || a.lstrip || a.rstrip)
    }

    /// Returns the first token from scan on; what is before from belongs to another. With plain, special tokens are text.
    pub fn next(&self, s: &str, from: usize, mut scan: usize, plain: bool) -> Option<Found> {
        loop {
            let m = self.find.find(aho_corasick::Input::new(s).range(scan..))?;
            scan = m.end();
            let (id, a) = &self.tokens[m.pattern().as_usize()];
            let (mut start, mut stop) = (m.start(), m.end());
            if plain && a.special {
                continue;
            }
            if a.single_word && (word(s[..start].chars().next_back()) || word(s[stop..].chars().next())) {
                continue;
            }
            if a.lstrip {
                start = from.max(s[..start].trim_end().len());
            }
            if a.rstrip {
                stop = s.len() - s[stop..].trim_start().len();
            }
            return Some(Found { id: *id, start, stop, scan });
        }
    }
}
