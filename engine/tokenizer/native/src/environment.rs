//! Jinja2's environment as transformers builds it: syntax, functions, tests, and conversion of
//! values to text.
use crate::pystr::{self, bad};
use crate::{budget, filters, methods, operators, strftime};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
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

fn is_callable(v: &Value) -> bool {
    matches!(v.kind(), ValueKind::Plain | ValueKind::Undefined)
}

fn is_sequence(v: &Value) -> bool {
    is_iterable(v) && (v.kind() != ValueKind::Iterable || v.len().is_some())
}

fn is_iterable(v: &Value) -> bool {
    matches!(v.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined | ValueKind::Iterable)
}

fn write(out: &mut Output, _: &mut State, v: &Value) -> Result<(), Error> {
    budget::check()?;
    match v.as_str() {
        Some(s) => out.write_str(s).map_err(Error::from),
        None => out.write_str(&pystr::str(v)?).map_err(Error::from),
    }
}

/// The delimiters and white space rules of transformers' environment.
pub fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Jinja2's ImmutableSandboxedEnvironment as transformers builds it; fuel is the maximum number of
/// steps of a render.
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
    filters::add_to(&mut env);
    for other in ["lines", "split", "chain", "zip", "bool"] {
        env.remove_filter(other); // Jinja2 has no filter of that name
    }
    operators::add_to(&mut env);
    env.add_test("callable", is_callable);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    Ok(env)
}
