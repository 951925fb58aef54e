//! Determines from a tokenizer's definition where a text can be divided so that the concatenated
//! ids of the parts equal the ids of the whole.
use crate::regex_nfa::Nfa;
use serde_json::{json, Value};
use std::borrow::Cow;
use std::collections::HashSet;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{Model, Tokenizer};
use unicode_normalization_alignments as unicode;
use unicode_normalization_alignments::IsNormalized;

/// The regex of ByteLevel with use_regex.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// How to divide a text between added tokens.
pub struct Recipe {
    border: Border,
    /// NFC or a similar form is the only normalizer.
    form_only: bool,
    /// The normalizer and the pre-tokenizer for text that continues a stretch: they prepend
    /// nothing.
    pub normalizer_inside: Option<NormalizerWrapper>,
    pub inside: Option<PreTokenizerWrapper>,
    /// The pre-tokenizer for the start of a stretch that is not the start of the whole text.
    pub later: Option<PreTokenizerWrapper>,
    /// The pre-tokenizer prepends a space to a stretch, and the regex sees it.
    pub space: bool,
    /// Something is prepended to a stretch.
    pub prepends: bool,
    regex: Option<Nfa>,
    digits: Digits,
    merges: Option<Merges>,
}

/// Whether digits are split off before the regex is applied: each alone, or in runs.
#[derive(Clone, Copy, PartialEq)]
enum Digits {
    No,
    Alone,
    Runs,
}

impl Digits {
    fn split(self, a: char, b: char) -> bool {
        match self {
            Digits::No => false,
            Digits::Alone => a.is_numeric() || b.is_numeric(),
            Digits::Runs => a.is_numeric() != b.is_numeric(),
        }
    }
}

/// Positions that normalization cannot look across.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    Anywhere,
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Bert,
}

impl Recipe {
    /// Returns None if no dividing position is known to be exact.
    pub fn new(t: &Tokenizer, definition: &[u8]) -> Option<Recipe> {
        if let ModelWrapper::BPE(m) = t.get_model() {
            if m.dropout.is_some_and(|d| d > 0.0) {
                return None;
            }
        }
        let mut prepends = false;
        let normalizers = stages(t.get_normalizer(), "normalizers")?;
        let mut kept = vec![];
        let mut border = Border::Anywhere;
        for (i, n) in normalizers.iter().enumerate() {
            match n["type"].as_str()? {
                "Prepend" => {
                    prepends = true;
                    continue;
                }
                "Lowercase" | "Nmt" | "StripAccents" | "ByteLevel" => {}
                "Replace" if n["pattern"]["String"].as_str().is_some_and(|s| s.chars().count() == 1) => {}
                kind if i == 0 => border = Border::new(kind)?,
                _ => return None,
            }
            kept.push(n.clone());
        }
        let normalizer_inside = match kept.is_empty() {
            true => None,
            false => Some(serde_json::from_value(json!({"type": "Sequence", "normalizers": kept})).ok()?),
        };
        let split = Splits::new(stages(t.get_pre_tokenizer(), "pretokenizers")?)?;
        let merges = match split.regex.is_none() && !split.bytes {
            true => Merges::new(t.get_model(), definition, split.space_is),
            false => None,
        };
        Some(Recipe {
            border,
            form_only: normalizers.len() == 1,
            normalizer_inside,
            inside: split.inside,
            later: split.later,
            space: split.space,
            prepends: prepends || split.prepends,
            regex: split.regex,
            digits: split.digits,
            merges,
        })
    }

    /// Reports whether the text before s and s are normalized independently.
    pub fn begins(&self, s: &str) -> bool {
        let Some(c) = s.chars().next() else { return true };
        self.border.before(c)
    }

    /// Reports whether a text is normalized already.
    pub fn normalized(&self, s: &str) -> bool {
        self.form_only && self.border.form(s.chars())
    }

    /// Reports whether the pre-token s[..end] is the same for any text after s; the next one starts
    /// at next. With space, the pre-tokenizer prepends a space to s.
    pub fn decided(&self, s: &str, end: usize, next: usize, space: bool) -> bool {
        let Some(r) = &self.regex else { return next < s.len() };
        let space = (space && !s.starts_with(' ')).then_some(' ');
        end == next && r.decided(space.into_iter().chain(s.chars()), |a, b| self.digits.split(a, b))
    }

    /// Returns the last position inside s across which the model merges nothing.
    pub fn between(&self, s: &str) -> Option<usize> {
        self.merges.as_ref()?.between(s)
    }
}

impl Border {
    fn new(kind: &str) -> Option<Border> {
        Some(match kind {
            "NFC" => Border::Nfc,
            "NFD" => Border::Nfd,
            "NFKC" => Border::Nfkc,
            "NFKD" => Border::Nfkd,
            "BertNormalizer" => Border::Bert,
            _ => return None,
        })
    }

    fn before(self, c: char) -> bool {
        match self {
            Border::Anywhere => true,
            // removed characters are not a border
            Border::Bert if !(c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric()) => false,
            Border::Bert => Border::Nfd.before(c),
            _ => self.form(std::iter::once(c)) && unicode::char::canonical_combining_class(c) == 0,
        }
    }

    /// Reports whether a text is already in the normal form, as far as a quick check can tell.
    fn form(self, s: impl Iterator<Item = char>) -> bool {
        let quick = match self {
            Border::Nfc => unicode::is_nfc_quick(s),
            Border::Nfkc => unicode::is_nfkc_quick(s),
            Border::Nfd => unicode::is_nfd_quick(s),
            Border::Nfkd => unicode::is_nfkd_quick(s),
            Border::Anywhere | Border::Bert => return false,
        };
        quick == IsNormalized::Yes
    }
}

/// The stages of a normalizer or a pre-tokenizer, nested sequences flattened.
fn stages<T: serde::Serialize>(of: Option<&T>, list: &str) -> Option<Vec<Value>> {
    fn walk(v: Value, list: &str, out: &mut Vec<Value>) -> Option<()> {
        match v.get(list) {
            Some(Value::Array(inner)) => inner.iter().try_for_each(|x| walk(x.clone(), list, out)),
            _ => {
                v.get("type")?.as_str()?;
                out.push(v);
                Some(())
            }
        }
    }
    let mut out = vec![];
    if let Some(x) = of {
        walk(serde_json::to_value(x).ok()?, list, &mut out)?;
    }
    Some(out)
}

/// The combined effect of a pre-tokenizer's stages.
struct Splits {
    inside: Option<PreTokenizerWrapper>,
    later: Option<PreTokenizerWrapper>,
    regex: Option<Nfa>,
    digits: Digits,
    bytes: bool,
    space: bool,
    prepends: bool,
    /// The character that represents a space for the model.
    space_is: char,
}

impl Splits {
    fn new(list: Vec<Value>) -> Option<Splits> {
        let mut out = Splits {
            inside: None,
            later: None,
            regex: None,
            digits: Digits::No,
            bytes: false,
            space: false,
            prepends: false,
            space_is: ' ',
        };
        let (mut inside, mut later) = (list.clone(), list.clone());
        for (i, stage) in list.iter().enumerate() {
            let flag = |name: &str| stage[name].as_bool().unwrap_or(false);
            if out.bytes {
                return None; // later stages see no text
            }
            match stage["type"].as_str()? {
                "Digits" if out.regex.is_none() => out.digits = if flag("individual_digits") { Digits::Alone } else { Digits::Runs },
                "Punctuation" | "WhitespaceSplit" | "Whitespace" | "BertPreTokenizer" | "CharDelimiterSplit"
                    if out.regex.is_none() => {}
                "Metaspace" if i == 0 => {
                    out.prepends = stage["prepend_scheme"] != "never";
                    inside[i]["prepend_scheme"] = json!("never");
                    if stage["prepend_scheme"] == "first" {
                        later[i]["prepend_scheme"] = json!("never");
                    }
                    out.space_is = stage["replacement"].as_str()?.chars().next()?;
                }
                "ByteLevel" if !flag("add_prefix_space") || i == 0 => {
                    out.bytes = true;
                    out.space = flag("add_prefix_space");
                    out.prepends |= out.space;
                    inside[i]["add_prefix_space"] = json!(false);
                    if flag("use_regex") {
                        out.expression(GPT2)?;
                    }
                }
                "Split" => match &stage["pattern"] {
                    Value::Object(p) if p.contains_key("String") => {
                        let one = p["String"].as_str()?.chars().count() == 1;
                        if !one || out.regex.is_some() {
                            return None;
                        }
                    }
                    p => {
                        let whole = stage["behavior"] == "Isolated" || stage["behavior"] == "Removed" && flag("invert");
                        if !whole {
                            return None;
                        }
                        out.expression(p["Regex"].as_str()?)?;
                    }
                },
                _ => return None,
            }
        }
        let build = |v: Vec<Value>| match v.is_empty() {
            true => Some(None),
            false => serde_json::from_value(json!({"type": "Sequence", "pretokenizers": v})).ok().map(Some),
        };
        (out.inside, out.later) = (build(inside)?, build(later)?);
        Some(out)
    }

    /// Sets the regex; there may be only one, and it must see the original text.
    fn expression(&mut self, pattern: &str) -> Option<()> {
        if self.regex.is_some() || self.space_is != ' ' {
            return None;
        }
        self.regex = Some(Nfa::new(pattern)?);
        Some(())
    }
}

/// The pairs of characters that a merge of a BPE model can join: the last one of its left side and
/// the first one of its right side.
struct Merges {
    pairs: Vec<(char, char)>,
    known: HashSet<char>,
    space_is: char,
}

impl Merges {
    fn new(m: &ModelWrapper, definition: &[u8], space_is: char) -> Option<Merges> {
        let ModelWrapper::BPE(bpe) = m else { return None };
        if bpe.ignore_merges || bpe.continuing_subword_prefix.is_some() || bpe.end_of_word_suffix.is_some() {
            return None;
        }
        let list = serde_json::from_slice::<Definition>(definition).ok()?.model.merges;
        let mut pairs = vec![];
        for m in &list {
            let (left, right) = m.sides()?;
            if [left, right].iter().any(|s| s.len() == 6 && s.starts_with("<0x")) {
                return None; // a merge of bytes that are not whole characters
            }
            pairs.push((left.chars().next_back()?, right.chars().next()?));
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs.shrink_to_fit();
        let known = pairs.iter().flat_map(|(a, b)| [*a, *b]).filter(|c| m.token_to_id(c.encode_utf8(&mut [0; 4])).is_some()).collect();
        Some(Merges { pairs, known, space_is })
    }

    fn between(&self, s: &str) -> Option<usize> {
        let seen = |c: char| if c == ' ' { self.space_is } else { c };
        let mut right = seen(s.chars().next_back()?);
        for (at, c) in s.char_indices().rev().skip(1) {
            let left = seen(c);
            if self.known.contains(&left) && self.known.contains(&right) && self.pairs.binary_search(&(left, right)).is_err() {
                return Some(at + c.len_utf8());
            }
            right = left;
        }
        None
    }
}

#[derive(serde::Deserialize)]
struct Definition<'a> {
    #[serde(borrow)]
    model: Bpe<'a>,
}

#[derive(serde::Deserialize)]
struct Bpe<'a> {
    #[serde(borrow, default)]
    merges: Vec<Merge<'a>>,
}

/// A merge, in either spelling of tokenizer.json.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Merge<'a> {
    Pair(#[serde(borrow)] Text<'a>, Text<'a>),
    Line(#[serde(borrow)] Text<'a>),
}

#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Merge<'_> {
    fn sides(&self) -> Option<(&str, &str)> {
        match self {
            Merge::Pair(a, b) => Some((&a.0, &b.0)),
            Merge::Line(l) => l.0.split_once(' '),
        }
    }
}
