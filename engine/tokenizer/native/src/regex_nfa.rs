//! An automaton over the positions of a splitting regex. It answers one question: do the characters
//! seen so far determine a match that starts here? It accepts at least everything that the regex
//! can look at, so a positive answer is always correct.
use onig::Regex;
use std::collections::HashMap;
use std::sync::RwLock;

/// A set of positions (character tests) of the regex.
type Set = u128;
const MOST: usize = 128;
const CACHED: usize = 16 << 10;

pub struct Nfa {
    first: Set,
    /// Positions that are a complete match, whatever follows.
    alone: Set,
    follow: Vec<Set>,
    tests: Vec<(Regex, Set)>,
    ascii: [Set; 128],
    others: RwLock<HashMap<char, Set>>,
}

impl Nfa {
    /// Returns None for a regex with constructs that this parser does not know.
    pub fn new(pattern: &str) -> Option<Nfa> {
        let mut p = Parser { src: pattern.chars().collect(), at: 0, icase: false, follow: vec![], leaves: vec![] };
        let whole = p.alternatives()?;
        if p.at < p.src.len() || whole.nullable {
            return None;
        }
        let mut tests: Vec<(String, Set)> = vec![];
        for (i, leaf) in p.leaves.into_iter().enumerate() {
            match tests.iter_mut().find(|(l, _)| *l == leaf) {
                Some((_, set)) => *set |= 1 << i,
                None => tests.push((leaf, 1 << i)),
            }
        }
        let tests = tests.into_iter().map(|(l, s)| Some((Regex::new(&l).ok()?, s))).collect::<Option<Vec<_>>>()?;
        let alone = whole.sure_first & whole.sure_last;
        let mut n = Nfa { first: whole.first, alone, follow: p.follow, tests, ascii: [0; 128], others: RwLock::default() };
        for b in 0..128u8 {
            n.ascii[usize::from(b)] = n.test(b.into());
        }
        Some(n)
    }

    fn test(&self, c: char) -> Set {
        let mut buf = [0; 4];
        let s: &str = c.encode_utf8(&mut buf);
        self.tests.iter().filter(|(r, _)| r.is_match(s)).fold(0, |all, (_, set)| all | set)
    }

    fn positions(&self, c: char) -> Set {
        if c.is_ascii() {
            return self.ascii[c as usize];
        }
        if let Some(s) = self.others.read().unwrap().get(&c) {
            return *s;
        }
        let s = self.test(c);
        let mut m = self.others.write().unwrap();
        if m.len() < CACHED {
            m.insert(c, s);
        }
        s
    }

    /// Reports whether a match starts at the beginning of s and no character after s can change it;
    /// ends reports whether the regex sees an end of the text between two characters.
    pub fn decided(&self, s: impl IntoIterator<Item = char>, ends: impl Fn(char, char) -> bool) -> bool {
        let mut chars = s.into_iter();
        let Some(mut c) = chars.next() else { return false };
        let at = self.positions(c);
        if at & self.alone == 0 {
            return false;
        }
        let mut live = at & self.first;
        for after in chars {
            if ends(c, after) {
                return true;
            }
            c = after;
            let mut next = 0;
            while live != 0 {
                next |= self.follow[live.trailing_zeros() as usize];
                live &= live - 1;
            }
            live = next & self.positions(c);
            if live == 0 {
                return true;
            }
        }
        false
    }
}

/// A part of the regex: the positions that it can begin and end with. The sure sets exclude matches
/// that depend on a lookahead or on a possessive quantifier.
#[derive(Clone, Copy)]
struct Part {
    first: Set,
    last: Set,
    nullable: bool,
    sure_first: Set,
    sure_last: Set,
    sure_nullable: bool,
}

const EMPTY: Part = Part { first: 0, last: 0, nullable: true, sure_first: 0, sure_last: 0, sure_nullable: true };

struct Parser {
    src: Vec<char>,
    at: usize,
    icase: bool,
    follow: Vec<Set>,
    leaves: Vec<String>,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.src.get(self.at).copied()
    }

    fn eat(&mut self, s: &str) -> bool {
        let is = s.chars().enumerate().all(|(i, c)| self.src.get(self.at + i) == Some(&c));
        if is {
            self.at += s.chars().count();
        }
        is
    }

    fn alternatives(&mut self) -> Option<Part> {
        let mut out = self.sequence()?;
        while self.eat("|") {
            let b = self.sequence()?;
            out = Part {
                first: out.first | b.first,
                last: out.last | b.last,
                nullable: out.nullable || b.nullable,
                sure_first: out.sure_first | b.sure_first,
                sure_last: out.sure_last | b.sure_last,
                sure_nullable: out.sure_nullable || b.sure_nullable,
            };
        }
        Some(out)
    }

    fn sequence(&mut self) -> Option<Part> {
        let mut out = EMPTY;
        while !matches!(self.peek(), None | Some('|' | ')')) {
            let b = self.repeated()?;
            out = self.join(out, b);
        }
        Some(out)
    }

    fn join(&mut self, a: Part, b: Part) -> Part {
        self.connect(a.last, b.first);
        let pick = |yes: bool, s: Set| if yes { s } else { 0 };
        Part {
            first: a.first | pick(a.nullable, b.first),
            last: b.last | pick(b.nullable, a.last),
            nullable: a.nullable && b.nullable,
            sure_first: a.sure_first | pick(a.sure_nullable, b.sure_first),
            sure_last: b.sure_last | pick(b.sure_nullable, a.sure_last),
            sure_nullable: a.sure_nullable && b.sure_nullable,
        }
    }

    fn connect(&mut self, from: Set, to: Set) {
        for (i, f) in self.follow.iter_mut().enumerate() {
            if from >> i & 1 == 1 {
                *f |= to;
            }
        }
    }

    fn repeated(&mut self) -> Option<Part> {
        let start = self.at;
        let mut out = self.atom()?;
        let end = self.at;
        loop {
            let (least, most) = match self.peek() {
                Some('?') => (0, Some(1)),
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('{') => (0, Some(0)),
                _ => return Some(out),
            };
            self.at += 1;
            if most == Some(0) {
                let (least, most) = self.bounds()?;
                // copies of the atom, each with its own positions
                let after = self.at;
                let mut all = EMPTY;
                for n in 0..most.unwrap_or(least.max(1)) {
                    self.at = start;
                    let mut one = self.atom()?;
                    if n >= least {
                        one.nullable = true;
                        one.sure_nullable = true;
                    }
                    if most.is_none() && n + 1 == least.max(1) {
                        self.connect(one.last, one.first);
                    }
                    all = self.join(all, one);
                }
                if self.at != end {
                    return None;
                }
                self.at = after;
                // nothing leads to the positions of the atom parsed first
                out = all;
                if matches!(self.peek(), Some('?' | '*' | '+' | '{')) {
                    return None;
                }
                return Some(out);
            }
            if most.is_none() {
                self.connect(out.last, out.first);
            }
            if least == 0 {
                out.nullable = true;
                out.sure_nullable = true;
            }
            if self.eat("+") {
                out.sure_nullable = false;
            } else {
                self.eat("?");
            }
            if matches!(self.peek(), Some('?' | '*' | '+' | '{')) {
                return None;
            }
        }
    }

    /// Reads n}, n,} or n,m}.
    fn bounds(&mut self) -> Option<(usize, Option<usize>)> {
        let least = self.number()?;
        let most = match self.eat(",") {
            false => Some(least),
            true if self.peek() == Some('}') => None,
            true => Some(self.number()?),
        };
        let fits = most.is_none_or(|m| m >= least && m > 0) && least <= MOST;
        (fits && self.eat("}")).then_some((least, most))
    }

    fn number(&mut self) -> Option<usize> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        self.src[start..self.at].iter().collect::<String>().parse().ok()
    }

    fn atom(&mut self) -> Option<Part> {
        let start = self.at;
        if self.eat("(?=") || self.eat("(?!") {
            let inner = self.group(self.icase)?;
            return Some(Part { first: inner.first, ..Part { sure_nullable: false, ..EMPTY } });
        }
        if self.eat("(?:") {
            return self.group(self.icase);
        }
        if self.eat("(?i:") {
            let inner = self.group(true)?;
            let text: String = self.src[start..self.at].iter().collect::<String>().to_lowercase();
            // pairs that equal one character if case is ignored
            let folded = ["ss", "ff", "fi", "fl", "st"].iter().any(|p| text.contains(p));
            return (text.is_ascii() && !folded).then_some(inner);
        }
        if self.eat("(?>") {
            let inner = self.group(self.icase)?;
            return Some(Part { sure_first: 0, sure_last: 0, sure_nullable: false, ..inner });
        }
        match self.peek()? {
            '(' if self.src.get(self.at + 1) != Some(&'?') => {
                self.at += 1;
                self.group(self.icase)
            }
            '(' | ')' | '^' | '$' | '?' | '*' | '+' | '{' | '}' | ']' => None,
            '[' => self.class(),
            '\\' => self.escape(),
            '.' => {
                self.at += 1;
                (!self.icase).then(|| self.leaf(".".into()))?
            }
            c => {
                self.at += 1;
                let escaped = if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() };
                self.leaf(escaped)
            }
        }
    }

    fn group(&mut self, icase: bool) -> Option<Part> {
        let outer = std::mem::replace(&mut self.icase, icase);
        let inner = self.alternatives()?;
        self.icase = outer;
        self.eat(")").then_some(inner)
    }

    fn leaf(&mut self, test: String) -> Option<Part> {
        let i = self.leaves.len();
        if i == MOST {
            return None;
        }
        self.leaves.push(if self.icase { format!("\\A(?i:{test})\\z") } else { format!("\\A(?:{test})\\z") });
        self.follow.push(0);
        let s = 1 << i;
        Some(Part { first: s, last: s, nullable: false, sure_first: s, sure_last: s, sure_nullable: false })
    }

    fn class(&mut self) -> Option<Part> {
        let start = self.at;
        let mut depth = 0;
        loop {
            match self.peek()? {
                '\\' => self.at += 1,
                '[' => {
                    depth += 1;
                    if self.src.get(self.at + 1) == Some(&'^') {
                        self.at += 1;
                    }
                    if matches!(self.src.get(self.at + 1), Some(']' | ':')) {
                        return None;
                    }
                }
                ']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
        let text: String = self.src[start..self.at].iter().collect();
        let letters = text[1..text.len() - 1].bytes().all(|b| b.is_ascii_alphabetic());
        (!self.icase || letters).then(|| self.leaf(text))?
    }

    fn escape(&mut self) -> Option<Part> {
        let start = self.at;
        self.at += 1;
        let c = self.peek()?;
        self.at += 1;
        match c {
            's' | 'S' | 'd' | 'D' | 'w' | 'W' => {}
            'p' | 'P' => {
                if !self.eat("{") {
                    return None;
                }
                while self.peek()? != '}' {
                    self.at += 1;
                }
                self.at += 1;
            }
            'r' | 'n' | 't' | 'f' => {}
            c if c.is_ascii_punctuation() => {}
            _ => return None,
        }
        let text: String = self.src[start..self.at].iter().collect();
        (!self.icase || c.is_ascii_punctuation()).then(|| self.leaf(text))?
    }
}
