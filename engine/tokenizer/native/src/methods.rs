//! Methods of Python's str, list and dict that minijinja's pycompat lacks or implements
//! differently.
use crate::budget;
use crate::filters::{join_texts, replace_text};
use crate::operators::sane_widths;
use crate::pystr::{bad, type_name};
use minijinja::value::{from_args, Kwargs, Tuple, Value, ValueKind};
use minijinja::{Error, State};

/// The maximum width of padding.
const MAX_WIDTH: usize = 100_000;

/// The maximum number of parts of one split.
const MAX_PARTS: usize = 1_000_000;

/// str.isspace(): Unicode white space and the four ASCII separators.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// str.strip and its one-sided forms; chars is a set of characters.
pub fn strip<'a>(s: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let take = |c: char| chars.map_or(is_space(c), |set| set.contains(c));
    let s = if left { s.trim_start_matches(take) } else { s };
    if right {
        s.trim_end_matches(take)
    } else {
        s
    }
}

/// Called for methods that the value itself does not have.
pub fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match (value.as_str(), value.kind()) {
        (Some(s), _) => of_str(s, name, args)?,
        (_, ValueKind::Seq) => of_list(value, name, args)?,
        (_, ValueKind::Map) => of_dict(value, name)?,
        _ => None,
    };
    match own {
        Some(v) => Ok(v),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn immutable(name: &str, of: &str) -> Error {
    bad(format!("access to attribute '{name}' of '{of}' object is unsafe."))
}

fn of_list(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match name {
        "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => Err(immutable(name, "list")),
        "copy" => Ok(Some(value.clone())),
        "index" => {
            let (x,): (Value,) = from_args(args)?;
            match value.try_iter()?.position(|v| v == x) {
                Some(i) => Ok(Some(Value::from(i))),
                None => Err(bad("value is not in list")),
            }
        }
        _ => Ok(None),
    }
}

fn of_dict(value: &Value, name: &str) -> Result<Option<Value>, Error> {
    match name {
        "clear" | "pop" | "popitem" | "setdefault" | "update" => Err(immutable(name, "dict")),
        "copy" => Ok(Some(value.clone())),
        _ => Ok(None),
    }
}

fn of_str(s: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let v = match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(s, chars, name != "rstrip", name != "lstrip"))
        }
        "splitlines" => {
            let (keep, kw): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(kw.get("keepends")?).unwrap_or(false);
            kw.assert_all_used()?;
            split_lines(s, keep)?
        }
        "split" | "rsplit" => {
            let (sep, max, kw): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let (sep, max) = (sep.or(kw.get("sep")?), max.or(kw.get("maxsplit")?));
            kw.assert_all_used()?;
            split(s, sep, usize::try_from(max.unwrap_or(-1)).unwrap_or(usize::MAX), name == "rsplit")?
        }
        "removeprefix" => {
            let (p,): (&str,) = from_args(args)?;
            Value::from(s.strip_prefix(p).unwrap_or(s))
        }
        "removesuffix" => {
            let (p,): (&str,) = from_args(args)?;
            Value::from(s.strip_suffix(p).unwrap_or(s))
        }
        "partition" | "rpartition" => partition(s, args, name == "partition")?,
        "index" | "rindex" => {
            let (p,): (&str,) = from_args(args)?;
            let hit = if name == "index" { s.find(p) } else { s.rfind(p) };
            Value::from(s[..hit.ok_or_else(|| bad("substring not found"))?].chars().count())
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            Value::from(pad(s, width, fill.unwrap_or(" "), name)?)
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let digits = s.strip_prefix(['+', '-']).unwrap_or(s);
            let sign = &s[..s.len() - digits.len()];
            Value::from(sign.to_string() + &pad(digits, width.saturating_sub(sign.len()), "0", "rjust")?)
        }
        "title" => Value::from(title(s)),
        "capitalize" => Value::from(capitalize(s)),
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            Value::from(replace_text(s, old, new, count)?)
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            Value::from(join_texts(s, items, only_text)?)
        }
        "format" => {
            sane_widths(s)?;
            return Ok(None);
        }
        "casefold" => Value::from(s.to_lowercase()),
        "swapcase" => Value::from(s.chars().map(swap_case).collect::<String>()),
        _ => return Ok(None),
    };
    Ok(Some(v))
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() {
        c.to_lowercase().collect()
    } else {
        c.to_uppercase().collect()
    }
}

/// The title case of a letter: ß becomes Ss.
fn title_case(c: char, out: &mut String) {
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    out.extend(upper.flat_map(char::to_lowercase));
}

pub fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            title_case(c, &mut out);
        }
        inside = c.is_alphabetic();
    }
    out
}

pub fn capitalize(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut rest = s.chars();
    rest.next().into_iter().for_each(|c| title_case(c, &mut out));
    out.push_str(&rest.as_str().to_lowercase());
    out
}

/// str.join takes texts only.
fn only_text(v: &Value) -> Result<String, Error> {
    match v.as_str() {
        Some(s) => Ok(s.to_string()),
        None => Err(bad(format!("sequence item: expected str instance, {} found", type_name(v)))),
    }
}

fn pad(s: &str, width: usize, fill: &str, how: &str) -> Result<String, Error> {
    if fill.chars().count() != 1 {
        return Err(bad("The fill character must be exactly one character long"));
    }
    if width > MAX_WIDTH {
        return Err(bad(format!("width is over {MAX_WIDTH}")));
    }
    let n = width.saturating_sub(s.chars().count());
    let left = match how {
        "ljust" => 0,
        "rjust" => n,
        _ => n / 2 + (n & width & 1),
    };
    Ok(format!("{}{s}{}", fill.repeat(left), fill.repeat(n - left)))
}

fn partition(s: &str, args: &[Value], first: bool) -> Result<Value, Error> {
    let (sep,): (&str,) = from_args(args)?;
    if sep.is_empty() {
        return Err(bad("empty separator"));
    }
    let hit = if first { s.split_once(sep) } else { s.rsplit_once(sep) };
    let parts = match hit {
        Some((a, b)) => [a, sep, b],
        None if first => [s, "", ""],
        None => ["", "", s],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn split_lines(s: &str, keep: bool) -> Result<Value, Error> {
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = s;
    budget::check_bytes(s.matches(ends).count().saturating_mul(2 * size_of::<Value>()))?;
    while let Some(i) = rest.find(ends) {
        let wide = if rest[i..].starts_with("\r\n") { 2 } else { rest[i..].chars().next().map_or(1, char::len_utf8) };
        lines.push(Value::from(&rest[..if keep { i + wide } else { i }]));
        rest = &rest[i + wide..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Ok(Value::from(lines))
}

/// str.split / str.rsplit with at most max splits.
fn split(s: &str, sep: Option<&str>, max: usize, right: bool) -> Result<Value, Error> {
    budget::check_bytes(s.len())?;
    let max = max.min(MAX_PARTS);
    let mut parts: Vec<&str> = match sep {
        Some("") => return Err(bad("empty separator")),
        Some(sep) if right => s.rsplitn(max.saturating_add(1), sep).collect(),
        Some(sep) => s.splitn(max.saturating_add(1), sep).collect(),
        None if right => right_words(s, max),
        None => words(s, max),
    };
    if parts.len() > MAX_PARTS {
        return Err(bad(format!("split into more than {MAX_PARTS} parts")));
    }
    if right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

fn words(s: &str, max: usize) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = s.trim_start_matches(is_space);
    while !rest.is_empty() {
        match rest.find(is_space) {
            Some(i) if out.len() < max => {
                out.push(&rest[..i]);
                rest = rest[i..].trim_start_matches(is_space);
            }
            _ => {
                out.push(rest);
                break;
            }
        }
    }
    out
}

/// Words from the right, the last one first.
fn right_words(s: &str, max: usize) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = s.trim_end_matches(is_space);
    while !rest.is_empty() {
        match rest.char_indices().rfind(|(_, c)| is_space(*c)) {
            Some((i, c)) if out.len() < max => {
                out.push(&rest[i + c.len_utf8()..]);
                rest = rest[..i].trim_end_matches(is_space);
            }
            _ => {
                out.push(rest);
                break;
            }
        }
    }
    out
}
