//! The tojson filter as transformers configures it: json.dumps without HTML escaping, ensure_ascii
//! off.
use crate::budget;
use crate::pystr::{self, bad, MAX_DEPTH};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

struct Dump {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
pub fn tojson(value: &Value, args: Rest<Value>, kw: Kwargs) -> Result<Value, Error> {
    let arg = |i: usize, name: &str| -> Result<Value, Error> {
        match args.get(i) {
            Some(v) => Ok(v.clone()),
            None => Ok(kw.get::<Option<Value>>(name)?.unwrap_or(Value::from(()))),
        }
    };
    let (ascii, indent) = (arg(0, "ensure_ascii")?, arg(1, "indent")?);
    let (separators, sort) = (arg(2, "separators")?, arg(3, "sort_keys")?);
    kw.assert_all_used()?;
    let indent = match indent.kind() {
        ValueKind::None | ValueKind::Undefined => None,
        ValueKind::String => Some(indent.as_str().unwrap_or("").to_string()),
        ValueKind::Bool => Some(" ".repeat(indent.is_true() as usize)),
        _ => Some(" ".repeat(i64::try_from(indent)?.clamp(0, 64) as usize)),
    };
    let (item, key) = match separators.kind() {
        ValueKind::None | ValueKind::Undefined => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
        _ => match &separators.try_iter()?.collect::<Vec<_>>()[..] {
            [a, b] => (a.to_string(), b.to_string()),
            _ => return Err(bad("separators must be a pair")),
        },
    };
    let dump = Dump { ascii: ascii.is_true(), indent, item, key, sort: sort.is_true() };
    let mut out = String::new();
    dump.value(value, 0, &mut out)?;
    Ok(Value::from(out))
}

fn refuse(msg: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadSerialization, msg.into())
}

impl Dump {
    fn text(&self, s: &str, out: &mut String) {
        out.push('"');
        for c in s.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && (c as u32) > 0x7e) => {
                    for unit in c.encode_utf16(&mut [0u16; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn number(v: &Value) -> String {
        if v.is_integer() {
            return v.to_string();
        }
        match f64::try_from(v.clone()) {
            Ok(f) if f.is_nan() => "NaN".into(),
            Ok(f) if f.is_infinite() => if f > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            _ => pystr::number(v),
        }
    }

    fn key(&self, k: &Value, out: &mut String) -> Result<(), Error> {
        let text = match k.kind() {
            ValueKind::String => k.as_str().unwrap_or("").to_string(),
            ValueKind::Bool => k.is_true().to_string(),
            ValueKind::None => "null".into(),
            ValueKind::Number => Self::number(k),
            _ => return Err(refuse("keys must be str, int, float, bool or None")),
        };
        self.text(&text, out);
        Ok(())
    }

    fn list(&self, v: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut n = 0;
        out.push('[');
        for item in v.try_iter()?.checked() {
            if n > 0 {
                out.push_str(&self.item);
            }
            self.line(depth + 1, out);
            self.value(&item?, depth + 1, out)?;
            n += 1;
        }
        if n > 0 {
            self.line(depth, out);
        }
        out.push(']');
        Ok(())
    }

    fn map(&self, v: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys = v.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
        if self.sort {
            keys.sort();
        }
        out.push('{');
        for (n, k) in keys.iter().enumerate() {
            if n > 0 {
                out.push_str(&self.item);
            }
            self.line(depth + 1, out);
            self.key(k, out)?;
            out.push_str(&self.key);
            self.value(&v.get_item(k)?, depth + 1, out)?;
        }
        if !keys.is_empty() {
            self.line(depth, out);
        }
        out.push('}');
        Ok(())
    }

    fn value(&self, v: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        budget::check()?;
        if depth > MAX_DEPTH {
            return Err(refuse("value nested too deeply"));
        }
        match v.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if v.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&Self::number(v)),
            ValueKind::String => self.text(v.as_str().unwrap_or(""), out),
            ValueKind::Seq | ValueKind::Iterable => self.list(v, depth, out)?,
            ValueKind::Map => self.map(v, depth, out)?,
            ValueKind::Undefined => return Err(refuse("Object of type Undefined is not JSON serializable")),
            kind => return Err(refuse(format!("Object of type {kind} is not JSON serializable"))),
        }
        Ok(())
    }
}
