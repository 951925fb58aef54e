//! Finds the positions of added tokens in a text, one after the other.
use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;
use std::sync::LazyLock;
use tokenizers::{AddedToken, Tokenizer};

static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\w").unwrap());

fn word(c: Option<char>) -> bool {
    c.is_some_and(|c| WORD.is_match(c.encode_utf8(&mut [0; 4])))
}

/// The added tokens that are matched in the original text, or those matched in the normalized text.
pub struct Added {
    find: AhoCorasick,
    tokens: Vec<(u32, AddedToken)>,
    /// Bytes of the longest added token.
    pub longest: usize,
}

/// The range of a token, including the white space that it strips.
pub struct Found {
    pub id: u32,
    pub start: usize,
    pub stop: usize,
    /// Where the search continues.
    pub scan: usize,
}

impl Added {
    /// text returns the form in which a token is matched.
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

    /// Reports whether matches depend on the surrounding text.
    pub fn looks_around(&self) -> bool {
        self.tokens.iter().any(|(_, a)| a.single_word || a.lstrip || a.rstrip)
    }

    /// Returns the first token at or after scan; text before from belongs to the previous token.
    /// With plain, special tokens are plain text.
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
