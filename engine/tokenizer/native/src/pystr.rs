//! Python's str() and repr() of template values.
use crate::budget;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// The maximum nesting of values, because every level takes stack.
pub const MAX_DEPTH: usize = 200;

pub fn bad(msg: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, msg.into())
}

/// Python's name of a value's type, for error texts.
pub fn type_name(v: &Value) -> &'static str {
    match v.kind() {
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if v.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Seq => "list",
        ValueKind::Map => "dict",
        _ => "object",
    }
}

/// repr(float): the shortest digits that round-trip, with an exponent below 1e-4 and from 1e16 on.
pub fn float(f: f64) -> String {
    if f.is_nan() {
        return "nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf" } else { "-inf" }.into();
    }
    let sci = format!("{f:e}");
    let (digits, exp) = sci.split_once('e').unwrap_or((&sci, "0"));
    let exp: i32 = exp.parse().unwrap_or(0);
    if !(-4..16).contains(&exp) {
        let sign = if exp < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exp.abs());
    }
    let plain = format!("{f}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

pub fn number(v: &Value) -> String {
    match f64::try_from(v.clone()) {
        Ok(f) if !v.is_integer() => float(f),
        _ => v.to_string(),
    }
}

/// True for characters that repr() does not escape; an approximation of str.isprintable().
fn printable(c: char) -> bool {
    let space = c.is_whitespace() && c != ' ';
    let hidden = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}');
    !(c.is_control() || space || hidden)
}

fn repr_text(s: &str, out: &mut String) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        let _ = match c {
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            c if c == quote => write!(out, "\\{c}"),
            c if printable(c) => out.write_char(c),
            c if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32),
            c if (c as u32) < 0x10000 => write!(out, "\\u{:04x}", c as u32),
            c => write!(out, "\\U{:08x}", c as u32),
        };
    }
    out.push(quote);
}

fn repr_items(v: &Value, brackets: (char, char), out: &mut String, depth: usize) -> Result<usize, Error> {
    out.push(brackets.0);
    let mut n = 0;
    for item in v.try_iter()?.checked() {
        if n > 0 {
            out.push_str(", ");
        }
        repr(&item?, out, depth + 1)?;
        budget::check()?;
        n += 1;
    }
    if n == 1 && brackets.0 == '(' {
        out.push(',');
    }
    out.push(brackets.1);
    Ok(n)
}

fn repr_map(v: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    out.push('{');
    for (i, key) in v.try_iter()?.checked().enumerate() {
        let key = key?;
        budget::check()?;
        if i > 0 {
            out.push_str(", ");
        }
        repr(&key, out, depth + 1)?;
        out.push_str(": ");
        repr(&v.get_item(&key)?, out, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

pub fn repr(v: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(bad("value nested too deeply"));
    }
    match v.kind() {
        ValueKind::String => repr_text(v.as_str().unwrap_or(""), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number => out.push_str(&number(v)),
        ValueKind::Seq if v.is_tuple() => return repr_items(v, ('(', ')'), out, depth).map(drop),
        ValueKind::Seq => return repr_items(v, ('[', ']'), out, depth).map(drop),
        ValueKind::Iterable if v.len().is_some() => return repr_items(v, ('[', ']'), out, depth).map(drop),
        ValueKind::Map => return repr_map(v, out, depth),
        _ => write!(out, "{v}").unwrap_or(()),
    }
    Ok(())
}

pub fn str(v: &Value) -> Result<String, Error> {
    match v.kind() {
        ValueKind::Number => Ok(number(v)),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            let mut s = String::new();
            repr(v, &mut s, 0)?;
            Ok(s)
        }
        _ => Ok(v.to_string()),
    }
}
