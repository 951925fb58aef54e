//! Filters, tests and functions that must act as Jinja2's, and the environment that holds them.
use crate::methods::{self, strip};
use crate::pystr::{self, bad};
use crate::{json, strftime};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, Output, State, UndefinedBehavior};
use std::fmt;

/// Marks an error made by raise_exception().
#[derive(Debug)]
pub struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(msg: &Value) -> Result<Value, Error> {
    let text = pystr::str(msg)?;
    Err(bad("raised by the template").with_source(Raised(text)))
}

fn string(v: &Value) -> Result<Value, Error> {
    match v.as_str() {
        Some(_) => Ok(v.clone()),
        None => Ok(Value::from(pystr::str(v)?)),
    }
}

fn trim(v: &Value, chars: Option<Value>) -> Result<String, Error> {
    let s = pystr::str(v)?;
    Ok(strip(&s, chars.as_ref().and_then(|c| c.as_str()), true, true).to_string())
}

fn from_float(f: f64) -> Option<Value> {
    f.is_finite().then(|| Value::from(f.trunc() as i128))
}

/// int(str, base), then int(float(str)); None where both fail.
fn parse_int(s: &str, base: u32) -> Option<Value> {
    let s = strip(s, None, true, true).replace('_', "");
    let body = s.strip_prefix(['+', '-']).unwrap_or(&s);
    let sign = if s.starts_with('-') { -1 } else { 1 };
    let digits = match base {
        16 => body.trim_start_matches("0x").trim_start_matches("0X"),
        8 => body.trim_start_matches("0o").trim_start_matches("0O"),
        2 => body.trim_start_matches("0b").trim_start_matches("0B"),
        _ => body,
    };
    match i128::from_str_radix(digits, base) {
        Ok(i) if !digits.starts_with(['+', '-']) => Some(Value::from(sign * i)),
        _ => body.parse::<f64>().ok().and_then(|f| from_float(sign as f64 * f)),
    }
}

/// int(value, default=0, base=10)
fn int(v: &Value, default: Option<Value>, base: Option<u32>, kw: Kwargs) -> Result<Value, Error> {
    let default = default.or(kw.get("default")?).unwrap_or(Value::from(0));
    let base = base.or(kw.get("base")?).unwrap_or(10);
    kw.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(bad("int() base must be >= 2 and <= 36"));
    }
    Ok(match v.kind() {
        ValueKind::Number if v.is_integer() => v.clone(),
        ValueKind::Number => from_float(f64::try_from(v.clone())?).unwrap_or(default),
        ValueKind::Bool => Value::from(v.is_true() as i64),
        ValueKind::String => parse_int(v.as_str().unwrap_or(""), base).unwrap_or(default),
        _ => default,
    })
}

/// float(value, default=0.0)
fn float(v: &Value, default: Option<Value>, kw: Kwargs) -> Result<Value, Error> {
    let default = default.or(kw.get("default")?).unwrap_or(Value::from(0.0));
    kw.assert_all_used()?;
    Ok(match v.kind() {
        ValueKind::Number => Value::from(f64::try_from(v.clone())?),
        ValueKind::Bool => Value::from(v.is_true() as i64 as f64),
        ValueKind::String => strip(v.as_str().unwrap_or(""), None, true, true).parse::<f64>().map_or(default, Value::from),
        _ => default,
    })
}

/// Python's name of a value's type, for error texts.
fn type_name(v: &Value) -> &'static str {
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

fn length(v: &Value) -> Result<usize, Error> {
    match v.kind() {
        ValueKind::Undefined => Ok(0),
        _ => v.len().ok_or_else(|| bad(format!("object of type '{}' has no len()", type_name(v)))),
    }
}

/// replace(s, old, new, count=None)
fn replace(v: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<String, Error> {
    let (s, old, new) = (pystr::str(v)?, pystr::str(old)?, pystr::str(new)?);
    Ok(match count.and_then(|n| usize::try_from(n).ok()) {
        Some(n) => s.replacen(&old, &new, n),
        None => s.replace(&old, &new),
    })
}

/// dictsort(value, case_sensitive=False, by="key", reverse=False), also with positional arguments.
fn dictsort(state: &mut State, v: &Value, args: Rest<Value>, kw: Kwargs) -> Result<Value, Error> {
    let mut named = Vec::new();
    for (i, name) in ["case_sensitive", "by", "reverse"].into_iter().enumerate() {
        let given = match args.get(i) {
            Some(v) => Some(v.clone()),
            None => kw.get::<Option<Value>>(name)?,
        };
        named.extend(given.map(|v| (name, v)));
    }
    kw.assert_all_used()?;
    Value::from_function(minijinja::filters::dictsort).call(state, &[v.clone(), Value::from(Kwargs::from_iter(named))])
}

fn is_callable(v: &Value) -> bool {
    v.kind() == ValueKind::Plain
}

fn is_sequence(v: &Value) -> bool {
    is_iterable(v) && (v.kind() != ValueKind::Iterable || v.len().is_some())
}

fn is_iterable(v: &Value) -> bool {
    matches!(v.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined | ValueKind::Iterable)
}

fn write(out: &mut Output, _: &mut State, v: &Value) -> Result<(), Error> {
    match v.as_str() {
        Some(s) => out.write_str(s).map_err(Error::from),
        None => out.write_str(&pystr::str(v)?).map_err(Error::from),
    }
}

/// The delimiters and white space rules of transformers' environment.
pub fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Jinja2's ImmutableSandboxedEnvironment as transformers builds it; fuel bounds the steps of a render.
pub fn environment(fuel: u64) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_syntax(syntax()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_formatter(write);
    env.set_recursion_limit(200);
    env.set_debug(true); // names the variable in "'x' is undefined"
    env.set_fuel(Some(fuel));
    env.set_unknown_method_callback(methods::call);
    env.remove_global("debug");
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime::strftime_now);
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function("cycler", minijinja_contrib::globals::cycler);
    env.add_filter("tojson", json::tojson);
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("replace", replace);
    env.add_filter("dictsort", dictsort);
    env.add_test("callable", is_callable);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    Ok(env)
}
