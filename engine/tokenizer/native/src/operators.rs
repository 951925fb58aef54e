//! The operators that program.rs substitutes for minijinja's, and its checks.
use crate::budget;
use crate::pystr::{self, bad, type_name};
use crate::slicing;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, State};
use std::cmp::Ordering;

pub fn add_to(env: &mut Environment<'_>) {
    env.add_filter("!concat", concat);
    env.add_filter("!summable", summable);
    env.add_filter("!toolarge", |_: &Value| -> Result<Value, Error> { Err(bad("a constant is too large")) });
    env.add_filter("!mul", mul);
    env.add_filter("!slice", slicing::slice);
    env.add_filter("!rem", rem);
    env.add_filter("!lt", |a: &Value, b: &Value| ordered("<", a, b).map(Ordering::is_lt));
    env.add_filter("!le", |a: &Value, b: &Value| ordered("<=", a, b).map(Ordering::is_le));
    env.add_filter("!gt", |a: &Value, b: &Value| ordered(">", a, b).map(Ordering::is_gt));
    env.add_filter("!ge", |a: &Value, b: &Value| ordered(">=", a, b).map(Ordering::is_ge));
    env.add_filter("!iter", iterated);
    env.add_filter("!storable", storable);
    env.add_filter("!built", built);
    env.add_filter("!kept", kept);
}

/// a ~ b: str() of both.
fn concat(a: &Value, b: &Value) -> Result<String, Error> {
    let (mut a, b) = (pystr::str(a)?, pystr::str(b)?);
    budget::check_bytes(b.len())?;
    a.push_str(&b);
    budget::check()?;
    Ok(a)
}

/// Checks that a + b fits in memory and returns the operands, last first, as UnpackList expects
/// them.
fn summable(a: Value, b: Value) -> Result<Value, Error> {
    let sum = match (a.as_str(), b.as_str()) {
        (Some(x), Some(y)) => x.len() + y.len(),
        _ if is_list(&a) && is_list(&b) => a.len().unwrap_or(0).saturating_add(b.len().unwrap_or(0)).saturating_mul(size_of::<Value>()),
        _ => 0,
    };
    budget::check_bytes(sum)?;
    Ok(Value::from(vec![b, a]))
}

pub fn is_list(v: &Value) -> bool {
    matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable)
}

pub fn whole(v: &Value) -> Option<i128> {
    match v.kind() {
        ValueKind::Bool => Some(v.is_true() as i128),
        ValueKind::Number if v.is_integer() => i128::try_from(v.clone()).ok(),
        _ => None,
    }
}

fn real(v: &Value) -> Option<f64> {
    match v.kind() {
        ValueKind::Number => f64::try_from(v.clone()).ok(),
        _ => whole(v).map(|i| i as f64),
    }
}

fn unsupported(op: &str, a: &Value, b: &Value) -> Error {
    bad(format!("unsupported operand type(s) for {op}: '{}' and '{}'", type_name(a), type_name(b)))
}

fn from_whole(i: i128) -> Value {
    i64::try_from(i).map_or_else(|_| Value::from(i), Value::from)
}

fn mul(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(x), Some(y)) = (whole(a), whole(b)) {
        return x.checked_mul(y).map(from_whole).ok_or_else(|| bad("integer overflow"));
    }
    if let (Some(x), Some(y)) = (real(a), real(b)) {
        return Ok(Value::from(x * y));
    }
    let (v, n) = match (whole(a), whole(b)) {
        (None, Some(n)) => (a, n),
        (Some(n), None) => (b, n),
        _ => return Err(unsupported("*", a, b)),
    };
    let n = usize::try_from(n.max(0)).map_err(|_| bad("cannot fit 'int' into an index-sized integer"))?;
    if let Some(s) = v.as_str() {
        budget::check_bytes(s.len().saturating_mul(n))?;
        return Ok(Value::from(s.repeat(n)));
    }
    if !is_list(v) {
        return Err(unsupported("*", a, b));
    }
    budget::check_bytes(v.len().unwrap_or(0).saturating_mul(n.max(1)).saturating_mul(size_of::<Value>()))?;
    budget::value()?;
    let items: Vec<Value> = v.try_iter()?.collect();
    Ok(std::iter::repeat_n(items, n).flatten().collect())
}

/// Python's %: the remainder has the divisor's sign; on a text it formats.
fn rem(state: &mut State, a: &Value, b: &Value) -> Result<Value, Error> {
    if a.as_str().is_some() {
        let args: Vec<Value> = if b.is_tuple() { b.try_iter()?.collect() } else { vec![b.clone()] };
        return printf(state, a, &args);
    }
    match (whole(a), whole(b), real(a), real(b)) {
        (Some(_), Some(0), ..) | (.., Some(0.0)) => Err(bad("modulo by zero")),
        (Some(x), Some(y), ..) => Ok(from_whole(x.checked_rem(y).map_or(0, |r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r }))),
        (.., Some(x), Some(y)) => Ok(Value::from(x - y * (x / y).floor())),
        _ => Err(unsupported("%", a, b)),
    }
}

/// 'format' % args. Operands that are neither text nor number are formatted with str(), and all
/// operands of %r with repr().
pub fn printf(state: &mut State, format: &Value, args: &[Value]) -> Result<Value, Error> {
    let text = format.as_str().ok_or_else(|| bad("the format is not a text"))?;
    sane_widths(text)?;
    let named = text.contains("%(");
    let (text, kinds) = conversions(text);
    let mut all = vec![Value::from(text)];
    for (i, v) in args.iter().enumerate() {
        all.push(match v.kind() {
            _ if kinds.get(i) == Some(&'r') => {
                let mut s = String::new();
                pystr::repr(v, &mut s, 0)?;
                Value::from(s)
            }
            ValueKind::Number | ValueKind::Bool | ValueKind::String => v.clone(),
            ValueKind::Map if named => v.clone(),
            _ => Value::from(pystr::str(v)?),
        });
    }
    Value::from_function(minijinja::filters::format).call(state, &all)
}

/// Returns the format with %s in place of %r, and the conversion letters in order.
fn conversions(format: &str) -> (String, Vec<char>) {
    let (mut out, mut kinds, mut inside) = (String::with_capacity(format.len()), Vec::new(), false);
    for c in format.chars() {
        if inside && (c.is_alphabetic() || c == '%') {
            inside = false;
            if c != '%' {
                kinds.push(c);
            }
            out.push(if c == 'r' { 's' } else { c });
            continue;
        }
        inside |= c == '%';
        out.push(c);
    }
    (out, kinds)
}

/// Refuses widths and precisions with more than four digits, and those given as arguments.
pub fn sane_widths(format: &str) -> Result<(), Error> {
    let long = format.as_bytes().windows(5).any(|w| w.iter().all(u8::is_ascii_digit));
    match long || format.contains("%*") || format.contains(".*") || format.contains(":{") {
        true => Err(bad("the format's width is too large, or an argument")),
        false => Ok(()),
    }
}

fn ordered(op: &str, a: &Value, b: &Value) -> Result<Ordering, Error> {
    if a.is_undefined() || b.is_undefined() {
        return Err(Error::new(minijinja::ErrorKind::UndefinedError, "an undefined value cannot be compared"));
    }
    if let (Some(x), Some(y)) = (real(a), real(b)) {
        let exact = whole(a).zip(whole(b)).map(|(x, y)| x.cmp(&y));
        // NaN is unordered: neither less nor greater; no template compares one
        return Ok(exact.or(x.partial_cmp(&y)).unwrap_or(Ordering::Equal));
    }
    if a.kind() == b.kind() && matches!(a.kind(), ValueKind::String | ValueKind::Seq) {
        return Ok(a.cmp(b));
    }
    Err(bad(format!("'{op}' not supported between instances of '{}' and '{}'", type_name(a), type_name(b))))
}

fn iterated(v: Value) -> Result<Value, Error> {
    match v.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number => Err(bad(format!("'{}' object is not iterable", type_name(&v)))),
        _ => Ok(v),
    }
}

fn is_namespace(v: &Value) -> bool {
    v.as_object().is_some_and(|o| o.type_name().ends_with("::Namespace"))
}

/// Refuses a namespace: stored inside itself it could never be freed, printed or compared.
fn storable(v: Value) -> Result<Value, Error> {
    match is_namespace(&v) {
        true => Err(bad("a namespace cannot be put into a namespace")),
        false if v.len().is_some_and(|n| n <= 64) => without_namespaces(v),
        false => Ok(v),
    }
}

fn built(v: Value) -> Result<Value, Error> {
    kept(without_namespaces(v)?)
}

fn without_namespaces(v: Value) -> Result<Value, Error> {
    if matches!(v.kind(), ValueKind::Seq | ValueKind::Map) {
        for item in v.try_iter()? {
            let inner = if v.kind() == ValueKind::Map { v.get_item(&item)? } else { item };
            if is_namespace(&inner) {
                return Err(bad("a namespace cannot be put into a list or a dict"));
            }
        }
    }
    Ok(v)
}

fn kept(v: Value) -> Result<Value, Error> {
    budget::check()?;
    if matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain) {
        budget::value()?;
    }
    Ok(v)
}
