//! Expressions of numbers: read once into steps on a stack, then computed often and without allocation.
//!
//! All values are 64-bit floating point. Comparisons give 1 or 0; 0 and NaN count as false. IEEE 754
//! rounds all operations exactly, so a figure is the same on every machine.

/// The deepest stack of values, and the deepest nesting of brackets.
const DEEPEST: usize = 32;

/// Computes one value from up to three.
type Function = fn([f64; 3]) -> f64;

#[derive(Debug, Clone, Copy)]
enum Step {
    Number(f64),
    /// A variable, by its index in the list of names.
    Variable(usize),
    /// Takes this many values off the stack and pushes the result.
    Apply(usize, Function),
}

/// The binary operations and how tightly they bind. Where one begins with another, the longer comes
/// first.
const BETWEEN: [(&str, u8, Function); 12] = [
    ("||", 0, |[a, b, _]| truth(is_true(a) || is_true(b))),
    ("&&", 1, |[a, b, _]| truth(is_true(a) && is_true(b))),
    ("==", COMPARISON, |[a, b, _]| truth(a == b)),
    ("!=", COMPARISON, |[a, b, _]| truth(a != b)),
    ("<=", COMPARISON, |[a, b, _]| truth(a <= b)),
    (">=", COMPARISON, |[a, b, _]| truth(a >= b)),
    ("<", COMPARISON, |[a, b, _]| truth(a < b)),
    (">", COMPARISON, |[a, b, _]| truth(a > b)),
    ("+", 3, |[a, b, _]| a + b),
    ("-", 3, |[a, b, _]| a - b),
    ("*", 4, |[a, b, _]| a * b),
    ("/", 4, |[a, b, _]| a / b),
];
const COMPARISON: u8 = 2;

/// The functions and their numbers of arguments.
const FUNCTIONS: [(&str, usize, Function); 6] = [
    ("min", 2, |[a, b, _]| a.min(b)),
    ("max", 2, |[a, b, _]| a.max(b)),
    ("abs", 1, |[a, ..]| a.abs()),
    ("sqrt", 1, |[a, ..]| a.sqrt()),
    ("floor", 1, |[a, ..]| a.floor()),
    ("if", 3, |[a, b, c]| if is_true(a) { b } else { c }),
];

/// The functions as an error message shows them.
pub(crate) const SHOWN: &str = "min(a, b), max(a, b), abs(a), sqrt(a), floor(a), if(a, b, c)";

/// Whether a value is true: neither 0 nor NaN.
pub(crate) fn is_true(a: f64) -> bool {
    a != 0.0 && !a.is_nan()
}

fn truth(a: bool) -> f64 {
    f64::from(u8::from(a))
}

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Expression(Vec<Step>);

impl Expression {
    /// Parses the expression at the beginning of `text`, with these variables. Also returns its
    /// length in bytes. An error is the place in bytes and the message.
    pub(crate) fn parse(text: &str, names: &[&str]) -> Result<(Self, usize), (usize, String)> {
        let mut parser = Parser { text, at: 0, names, steps: Vec::new(), deep: 0, nested: 0 };
        match parser.between(0) {
            Ok(()) => Ok((Expression(parser.steps), parser.at)),
            Err(what) => Err((parser.at, what)),
        }
    }

    /// Computes the value; `variable` gives those of the variables.
    pub(crate) fn value(&self, variable: impl Fn(usize) -> f64) -> f64 {
        let (mut stack, mut n) = ([0.0; DEEPEST + 2], 0);
        for step in &self.0 {
            // The slot of the result; the values below it stay.
            n -= step.takes();
            stack[n] = match *step {
                Step::Number(number) => number,
                Step::Variable(i) => variable(i),
                Step::Apply(_, f) => f([stack[n], stack[n + 1], stack[n + 2]]),
            };
            n += 1;
        }
        stack[0]
    }
}

impl Step {
    fn takes(&self) -> usize {
        if let Step::Apply(takes, _) = *self { takes } else { 0 }
    }
}

/// Parses from left to right. If one of its functions fails, `at` is the place of the mistake.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    names: &'a [&'a str],
    steps: Vec<Step>,
    /// The depth of the stack after these steps.
    deep: usize,
    nested: usize,
}

impl<'a> Parser<'a> {
    /// The rest of the text, without leading blanks.
    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn expects(&mut self, word: &str) -> Result<(), String> {
        let found = self.takes(word);
        found.then_some(()).ok_or_else(|| format!("'{word}' is missing"))
    }

    fn push(&mut self, step: Step) -> Result<(), String> {
        self.deep = self.deep + 1 - step.takes();
        self.steps.push(step);
        if self.deep <= DEEPEST { Ok(()) } else { Err("it is nested too deeply".to_owned()) }
    }

    /// Parses values and the operations between them that bind at least as tightly as `level`.
    fn between(&mut self, level: u8) -> Result<(), String> {
        self.value()?;
        let mut compared = false;
        loop {
            let rest = self.rest();
            let found = BETWEEN.iter().find(|o| rest.starts_with(o.0));
            let Some(&(word, binds, function)) = found.filter(|o| o.1 >= level) else {
                return Ok(());
            };
            if binds == COMPARISON && std::mem::replace(&mut compared, true) {
                return Err("two comparisons in a row, without && between".to_owned());
            }
            self.at += word.len();
            self.between(binds + 1)?;
            self.push(Step::Apply(2, function))?;
        }
    }

    /// Parses one value with the signs before it.
    fn value(&mut self) -> Result<(), String> {
        self.nested += 1;
        if self.nested > DEEPEST {
            return Err("it is nested too deeply".to_owned());
        }
        if self.takes("-") {
            self.value()?;
            self.push(Step::Apply(1, |[a, ..]| -a))?;
        } else if self.takes("!") {
            self.value()?;
            self.push(Step::Apply(1, |[a, ..]| truth(!is_true(a))))?;
        } else if self.takes("(") {
            self.between(0)?;
            self.expects(")")?;
        } else {
            self.word()?;
        }
        self.nested -= 1;
        Ok(())
    }

    /// Parses a number, a variable or a function.
    fn word(&mut self) -> Result<(), String> {
        let rest = self.rest();
        let end = |text: &str| {
            let belongs = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
            text.find(|c| !belongs(c)).unwrap_or(text.len())
        };
        let mut length = end(rest);
        let is_number = rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if is_number && rest[..length].ends_with('e') && rest[length..].starts_with(['+', '-']) {
            // The sign of an exponent.
            length += 1 + end(&rest[length + 1..]);
        }
        let word = &rest[..length];
        if word.is_empty() {
            return Err("a value is missing".to_owned());
        }
        if is_number {
            let number = number(word).ok_or_else(|| format!("'{word}' is no number"))?;
            self.at += length;
            return self.push(Step::Number(number));
        }
        if let Some(i) = self.names.iter().position(|n| *n == word) {
            self.at += length;
            return self.push(Step::Variable(i));
        }
        let found = FUNCTIONS.iter().find(|f| f.0 == word);
        let &(_, takes, function) = found.ok_or_else(|| format!("'{word}' is no variable"))?;
        self.at += length;
        for i in 0..takes {
            self.expects(if i == 0 { "(" } else { "," })?;
            self.between(0)?;
        }
        self.expects(")")?;
        self.push(Step::Apply(takes, function))
    }
}

/// Parses a number with an optional unit: `300`, `0.5`, `1e6`, `4K`, `1M`.
fn number(word: &str) -> Option<f64> {
    let units = [('k', 1u64 << 10), ('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];
    let unit = units.into_iter().find(|u| word.ends_with(u.0));
    let (digits, times) = unit.map_or((word, 1), |u| (&word[..word.len() - 1], u.1));
    let number = digits.parse::<f64>().ok()? * times as f64;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> f64 {
        let (expression, length) = Expression::parse(text, &["x", "y_us"]).unwrap();
        assert_eq!(length, text.len(), "{text}");
        expression.value(|i| [7.0, -2.0][i])
    }

    #[test]
    fn expressions_have_the_usual_values() {
        for (text, is) in [
            ("1 + 2 * 3 - 8 / 4 / 2", 6.0),
            ("(1 + 2) * -3", -9.0),
            ("1k + 0.5M + 1e3 + 2.5e-1 + .75", 526_313.0),
            ("x - y_us - -1 - 1", 9.0),
            ("max(min(x, 3), abs(y_us)) + sqrt(floor(16.9))", 7.0),
            ("if(x > 3 && !(y_us > 0), 10, 20) + (x == 7) + (x != 7)", 11.0),
            ("x < 7 || x <= 7 && x >= 8", 0.0),
            ("if(0 / 0, 1, 2) + (0 / 0 == 0 / 0) + !(0 / 0)", 3.0),
            ("1 / 0", f64::INFINITY),
        ] {
            assert_eq!(value(text), is, "{text}");
        }
        assert!(value("0 / x / 0").is_nan() && value("sqrt(y_us)").is_nan());
        assert_eq!(Expression::parse("x ]", &["x"]).unwrap().1, 2, "as far as it goes");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let (deep, signs) = ("(".repeat(100_000), "-".repeat(100_000));
        let right = "1 + (".repeat(40);
        for (text, place, what) in [
            ("", 0, "a value is missing"),
            ("x + * 2", 4, "a value is missing"),
            ("x + xs", 4, "'xs' is no variable"),
            ("x + é", 4, "'é' is no variable"),
            ("1 + 2m", 4, "'2m' is no number"),
            ("1e999", 0, "'1e999' is no number"),
            ("(x + 1", 6, "')' is missing"),
            ("min x", 4, "'(' is missing"),
            ("min(x)", 5, "',' is missing"),
            ("abs(x, 1)", 5, "')' is missing"),
            ("1 < x < 3", 6, "two comparisons in a row, without && between"),
            (&deep, DEEPEST, "it is nested too deeply"),
            (&signs, DEEPEST, "it is nested too deeply"),
            (&right, 160, "it is nested too deeply"),
        ] {
            let wrong = Expression::parse(text, &["x"]).unwrap_err();
            assert_eq!(wrong, (place, what.to_owned()), "{}", &text[..text.len().min(20)]);
        }
    }
}
