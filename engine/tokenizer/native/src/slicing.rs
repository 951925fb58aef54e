//! Python's slices.
use crate::budget;
use crate::operators::{is_list, whole};
use crate::pystr::{bad, type_name};
use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::Error;

/// v[start:stop:step] of a text or a list.
pub fn slice(v: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let step = bound(&step)?.unwrap_or(1);
    if step == 0 {
        return Err(bad("slice step cannot be zero"));
    }
    if let Some(s) = v.as_str() {
        let n = s.chars().count() as i128;
        let range = Range::new(n, bound(&start)?, bound(&stop)?, step);
        if step == 1 {
            return Ok(s.chars().skip(range.at as usize).take(range.n).collect::<String>().into());
        }
        budget::check_bytes(s.len().saturating_mul(size_of::<char>()))?;
        let chars: Vec<char> = s.chars().collect();
        return Ok(range.map(|i| chars[i]).collect::<String>().into());
    }
    if v.is_undefined() {
        return Err(Error::new(minijinja::ErrorKind::UndefinedError, "an undefined value cannot be sliced"));
    }
    if !is_list(&v) {
        return Err(bad(format!("'{}' object is not subscriptable", type_name(&v))));
    }
    budget::check_bytes(v.len().unwrap_or(0).saturating_mul(size_of::<Value>()))?;
    let items: Vec<Value> = v.try_iter()?.checked().collect::<Result<_, _>>()?;
    let picked = Range::new(items.len() as i128, bound(&start)?, bound(&stop)?, step).map(|i| items[i].clone());
    Ok(if v.is_tuple() { Value::from(Tuple::from(picked.collect::<Vec<_>>())) } else { picked.collect() })
}

fn bound(v: &Value) -> Result<Option<i128>, Error> {
    match (v.kind(), whole(v)) {
        (ValueKind::None, _) => Ok(None),
        (_, Some(i)) => Ok(Some(i)),
        _ => Err(bad("slice indices must be integers or None")),
    }
}

/// The indices that a slice selects, as Python's slice.indices() computes them.
struct Range {
    at: i128,
    n: usize,
    step: i128,
}

impl Range {
    fn new(len: i128, start: Option<i128>, stop: Option<i128>, step: i128) -> Range {
        let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
        let place = |i: i128| if i < 0 { i.saturating_add(len).max(low) } else { i.min(high) };
        let at = start.map_or(if step > 0 { low } else { high }, place);
        let end = stop.map_or(if step > 0 { high } else { low }, place);
        let span = if step > 0 { end - at } else { at - end };
        let n = if span <= 0 { 0 } else { (span - 1) / step.saturating_abs() + 1 };
        Range { at, n: n as usize, step }
    }
}

impl Iterator for Range {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let i = self.at;
        self.n = self.n.checked_sub(1)?;
        self.at = i.saturating_add(self.step);
        Some(i as usize)
    }
}
