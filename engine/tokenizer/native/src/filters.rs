//! Filters that must behave like Jinja2's, or that must check the memory limit before they build
//! something large.
use crate::methods::{self, strip};
use crate::pystr::{self, bad, type_name};
use crate::{budget, json, operators};
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State};

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

/// int(str, base), then int(float(str)); None if both fail.
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

fn length(v: &Value) -> Result<usize, Error> {
    match v.kind() {
        ValueKind::Undefined => Ok(0),
        _ => v.len().ok_or_else(|| bad(format!("object of type '{}' has no len()", type_name(v)))),
    }
}

/// replace(s, old, new, count=None)
fn replace(v: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<String, Error> {
    let (s, old, new) = (pystr::str(v)?, pystr::str(old)?, pystr::str(new)?);
    replace_text(&s, &old, &new, count)
}

/// str.replace: at most count replacements unless count is negative.
pub fn replace_text(s: &str, old: &str, new: &str, count: Option<i64>) -> Result<String, Error> {
    let most = count.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    if new.len() > old.len() {
        let hits = s.matches(old).take(most).count();
        budget::check_bytes(s.len().saturating_add(hits.saturating_mul(new.len())))?;
    }
    Ok(s.replacen(old, new, most))
}

/// join(value, d="", attribute=None)
fn join(state: &mut State, v: &Value, args: Rest<Value>, kw: Kwargs) -> Result<String, Error> {
    let d = args.first().cloned().or(kw.get("d")?).unwrap_or(Value::from(""));
    let attribute: Option<Value> = args.get(1).cloned().or(kw.get("attribute")?);
    kw.assert_all_used()?;
    let d = pystr::str(&d)?;
    match attribute.filter(|a| !a.is_none()) {
        Some(a) => join_texts(&d, &state.apply_filter("map", &[v.clone(), Value::from(Kwargs::from_iter([("attribute", a)]))])?, pystr::str),
        None => join_texts(&d, v, pystr::str),
    }
}

/// Joins the items' texts with the separator d.
pub fn join_texts(d: &str, v: &Value, text: fn(&Value) -> Result<String, Error>) -> Result<String, Error> {
    let mut out = String::new();
    for (i, item) in v.try_iter()?.checked().enumerate() {
        if i > 0 {
            out.push_str(d);
        }
        out.push_str(&text(&item?)?);
        budget::check()?;
    }
    Ok(out)
}

/// list(x): the characters of a text, the items of anything else.
fn list(state: &mut State, v: Value) -> Result<Value, Error> {
    let items = v.as_str().map(str::len).or_else(|| v.len()).unwrap_or(0);
    budget::check_bytes(items.saturating_mul(size_of::<Value>()))?;
    minijinja::filters::list(state, v)
}

/// sum(x, attribute=None, start=0) of numbers, or of lists.
fn sum(state: &mut State, v: Value, args: Rest<Value>, kw: Kwargs) -> Result<Value, Error> {
    let attribute = args.first().cloned().or(kw.get("attribute")?).filter(|a: &Value| !a.is_none());
    let start = args.get(1).cloned().or(kw.get("start")?).unwrap_or(Value::from(0));
    kw.assert_all_used()?;
    let v = match attribute {
        Some(a) => state.apply_filter("map", &[v, Value::from(Kwargs::from_iter([("attribute", a)]))])?,
        None => v,
    };
    if start.kind() != ValueKind::Seq {
        return Value::from_function(minijinja::filters::sum).call(state, &[v, Value::from(()), start]);
    }
    let mut all: Vec<Value> = start.try_iter()?.collect();
    for list in v.try_iter()?.checked() {
        for item in list?.try_iter()?.checked() {
            all.push(item?);
            budget::check()?;
        }
    }
    Ok(Value::from(all))
}

/// pprint(x), on one line.
fn pprint(v: &Value) -> Result<String, Error> {
    let mut out = String::new();
    pystr::repr(v, &mut out, 0)?;
    Ok(out)
}

/// indent(s, width=4, first=False, blank=False); width may be a text.
fn indent(v: &Value, args: Rest<Value>, kw: Kwargs) -> Result<String, Error> {
    let arg = |i: usize, name: &str| -> Result<Option<Value>, Error> {
        Ok(args.get(i).cloned().or(kw.get::<Option<Value>>(name)?))
    };
    let (width, first, blank) = (arg(0, "width")?, arg(1, "first")?, arg(2, "blank")?);
    kw.assert_all_used()?;
    let yes = |v: Option<Value>| v.is_some_and(|v| v.is_true());
    let (first, blank) = (yes(first), yes(blank));
    let pad = match width {
        Some(w) if w.as_str().is_some() => w.to_string(),
        Some(w) => " ".repeat(i64::try_from(w)?.clamp(0, 10_000) as usize),
        None => " ".repeat(4),
    };
    let s = pystr::str(v)?;
    budget::check_bytes(s.matches('\n').count().saturating_mul(pad.len()).saturating_add(s.len()))?;
    let mut out = String::with_capacity(s.len());
    for (i, line) in s.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if if i == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&pad);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// default(value, default_value="", boolean=False)
fn default(v: &Value, args: Rest<Value>, kw: Kwargs) -> Result<Value, Error> {
    let other = args.first().cloned().or(kw.get("default_value")?).unwrap_or(Value::from(""));
    let boolean = args.get(1).cloned().or(kw.get("boolean")?).is_some_and(|b| b.is_true());
    kw.assert_all_used()?;
    Ok(if v.is_undefined() || boolean && !v.is_true() { other } else { v.clone() })
}

/// attr(x, name): an attribute, never an item.
fn attr(v: &Value, name: &Value) -> Result<Value, Error> {
    match v.kind() {
        ValueKind::Map | ValueKind::Seq | ValueKind::String => Ok(Value::UNDEFINED),
        _ => minijinja::filters::attr(v, name),
    }
}

/// Checks the memory limit for batch(x, n, fill) and slice(x, n, fill), which create at most n
/// values or lists, including the fill.
fn check_count(v: &Value, n: &Value) -> Result<(), Error> {
    let n = usize::try_from(n.clone())?;
    budget::check_bytes(v.len().unwrap_or(0).saturating_add(n).saturating_mul(4 * size_of::<Value>()))
}

fn batch(state: &mut State, v: &Value, n: &Value, fill: Option<Value>) -> Result<Value, Error> {
    check_count(v, n)?;
    Value::from_function(minijinja::filters::batch).call(state, &[v.clone(), n.clone(), fill.unwrap_or(Value::from(()))])
}

fn slice(state: &mut State, v: &Value, n: &Value, fill: Option<Value>) -> Result<Value, Error> {
    check_count(v, n)?;
    Value::from_function(minijinja::filters::slice).call(state, &[v.clone(), n.clone(), fill.unwrap_or(Value::from(()))])
}

fn format(state: &mut State, v: &Value, args: Rest<Value>) -> Result<Value, Error> {
    operators::printf(state, v, &args)
}

fn capitalize(v: &Value) -> Result<String, Error> {
    Ok(methods::capitalize(&pystr::str(v)?))
}

/// title(s): a capital after white space, hyphens and opening brackets, unlike str.title().
fn title(v: &Value) -> Result<String, Error> {
    let s = pystr::str(v)?;
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = !(methods::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<'));
    }
    Ok(out)
}

/// escape(s), in the spelling of Python's markupsafe.
fn escape(v: &Value) -> Result<String, Error> {
    let s = pystr::str(v)?;
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(out)
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

/// Adds one of minijinja's filters that iterate over their first argument, with a check that a list
/// of its items fits in memory.
fn add_walker<F, Rv, Args>(env: &mut Environment<'static>, name: &'static str, f: F)
where
    F: minijinja::functions::Function<Rv, Args>,
    Rv: minijinja::value::FunctionResult,
    Args: for<'a> minijinja::value::FunctionArgs<'a>,
{
    let f = Value::from_function(f);
    env.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let args = args.into_values();
        let items = args.first().map_or(0, |v| v.as_str().map(str::len).or_else(|| v.len()).unwrap_or(0));
        budget::check_bytes(items.saturating_mul(2 * size_of::<Value>()))?;
        f.call(state, &args)
    });
}

/// Adds all filters to an environment.
pub fn add_to(env: &mut Environment<'static>) {
    env.add_filter("tojson", json::tojson);
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("replace", replace);
    env.add_filter("dictsort", dictsort);
    env.add_filter("join", join);
    env.add_filter("list", list);
    env.add_filter("indent", indent);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("attr", attr);
    env.add_filter("batch", batch);
    env.add_filter("slice", slice);
    env.add_filter("format", format);
    env.add_filter("capitalize", capitalize);
    env.add_filter("title", title);
    env.add_filter("escape", escape);
    env.add_filter("e", escape);
    env.add_filter("sum", sum);
    env.add_filter("pprint", pprint);
    add_walker(env, "map", minijinja::filters::map);
    add_walker(env, "select", minijinja::filters::select);
    add_walker(env, "reject", minijinja::filters::reject);
    add_walker(env, "selectattr", minijinja::filters::selectattr);
    add_walker(env, "rejectattr", minijinja::filters::rejectattr);
    add_walker(env, "sort", minijinja::filters::sort);
    add_walker(env, "unique", minijinja::filters::unique);
    add_walker(env, "groupby", minijinja::filters::groupby);
    add_walker(env, "reverse", minijinja::filters::reverse);
    add_walker(env, "min", minijinja::filters::min);
    add_walker(env, "max", minijinja::filters::max);
}
