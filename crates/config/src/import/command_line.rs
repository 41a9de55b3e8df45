//! Shell lines and scripts (sh, Windows batch, PowerShell) to the words of their commands: quotes, escapes, continued lines,
//! comments, and the variables that the script sets itself. Nothing is run, and the environment is not looked at.

use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Shell,
    Batch,
    PowerShell,
}

/// One command, with the variables in it that could not be worked out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Command {
    /// From 1.
    pub line: usize,
    pub words: Vec<String>,
    pub unknown: Vec<String>,
}

impl Dialect {
    /// By the file's extension, else by what only one of them would write.
    pub fn of(extension: &str, text: &str) -> Dialect {
        let ends = |sign: char| text.lines().any(|line| line.trim_end().ends_with(sign));
        match extension.to_ascii_lowercase().as_str() {
            "bat" | "cmd" => Dialect::Batch,
            "ps1" => Dialect::PowerShell,
            "sh" | "bash" | "zsh" => Dialect::Shell,
            _ if ends('\\') => Dialect::Shell,
            _ if ends('^') || text.trim_start().to_ascii_lowercase().starts_with("@echo") => Dialect::Batch,
            _ if ends('`') => Dialect::PowerShell,
            // A path of Windows in a bare line: its backslashes are no escapes.
            _ if has_drive(text) => Dialect::Batch,
            _ => Dialect::Shell,
        }
    }

    fn escape(self) -> char {
        match self {
            Dialect::Shell => '\\',
            Dialect::Batch => '^',
            Dialect::PowerShell => '`',
        }
    }
}

fn has_drive(text: &str) -> bool {
    text.as_bytes().windows(3).any(|w| w[0].is_ascii_alphabetic() && w[1] == b':' && w[2] == b'\\')
}

/// All commands of a script, in order.
pub(super) fn commands(text: &str, dialect: Dialect) -> Result<Vec<Command>> {
    let text = text.replace("\r\n", "\n");
    let mut reader = Reader { chars: text.chars().peekable(), dialect, line: 1, variables: BTreeMap::new(), done: Vec::new() };
    reader.run()?;
    Ok(reader.done)
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    dialect: Dialect,
    /// Of the next character.
    line: usize,
    variables: BTreeMap<String, String>,
    done: Vec<Command>,
}

/// The command that is being read.
#[derive(Default)]
struct Current {
    command: Command,
    word: Option<String>,
}

impl Current {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn push_text(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn end_word(&mut self) {
        self.command.words.extend(self.word.take());
    }

    fn is_empty(&self) -> bool {
        self.command.words.is_empty() && self.word.is_none()
    }
}

impl Reader<'_> {
    fn run(&mut self) -> Result<()> {
        let mut now = Current::default();
        loop {
            if now.is_empty() {
                now.command.line = self.line;
            }
            let Some(c) = self.next() else { break };
            match c {
                '\n' => self.end(&mut now),
                c if c == self.dialect.escape() => self.escaped(&mut now),
                ' ' | '\t' => self.blank(&mut now),
                '\'' if self.dialect != Dialect::Batch => self.literal(&mut now)?,
                '"' => self.quoted(&mut now)?,
                '#' if now.word.is_none() && self.dialect != Dialect::Batch => self.skip_line(),
                '>' => {
                    // `2>&1`: the number belongs to the redirection.
                    now.word = now.word.filter(|word| !word.bytes().all(|b| b.is_ascii_digit()));
                    now.end_word();
                    self.skip_line();
                }
                ';' if self.dialect != Dialect::Batch => self.end(&mut now),
                '@' if self.dialect == Dialect::PowerShell && now.word.is_none() => self.splat(&mut now),
                '&' | '|' => self.end(&mut now),
                '$' if self.dialect != Dialect::Batch => self.variable(&mut now),
                '%' if self.dialect == Dialect::Batch => self.batch_variable(&mut now),
                c => now.push(c),
            }
        }
        self.end(&mut now);
        Ok(())
    }

    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn skip_line(&mut self) {
        while self.chars.next_if(|c| *c != '\n').is_some() {}
    }

    /// The end of a word; `rem` makes the line a remark.
    fn blank(&mut self, now: &mut Current) {
        now.end_word();
        let remark = |word: &String| ["rem", "@rem", "::"].contains(&word.to_ascii_lowercase().as_str());
        if self.dialect == Dialect::Batch && now.command.words.len() == 1 && now.command.words.first().is_some_and(remark) {
            now.command.words.clear();
            self.skip_line();
        }
    }

    /// The end of a command: an assignment is remembered, anything else is kept.
    fn end(&mut self, now: &mut Current) {
        now.end_word();
        let command = std::mem::take(&mut now.command);
        match assignment(&command.words, self.dialect) {
            Some(pairs) => {
                // A list or another object of PowerShell is no text that could be put in.
                let objects = |value: &str| self.dialect == Dialect::PowerShell && value.starts_with(['[', '@']);
                self.variables.extend(pairs.into_iter().filter(|(_, value)| !objects(value)));
            }
            None if command.words.is_empty() => {}
            None => self.done.push(command),
        }
    }

    /// A continued line, or a character that means nothing special.
    fn escaped(&mut self, now: &mut Current) {
        match self.next() {
            Some('\n') | None => {}
            Some(c) => now.push(c),
        }
    }

    fn literal(&mut self, now: &mut Current) -> Result<()> {
        now.push_text("");
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(c) => now.push(c),
                None => bail!("a quote (') of the command that begins in line {} is never closed", now.command.line),
            }
        }
    }

    fn quoted(&mut self, now: &mut Current) -> Result<()> {
        now.push_text("");
        loop {
            match self.next() {
                Some('"') => return Ok(()),
                Some('$') if self.dialect != Dialect::Batch => self.variable(now),
                Some('%') if self.dialect == Dialect::Batch => self.batch_variable(now),
                Some('`') if self.dialect == Dialect::PowerShell => self.escaped(now),
                Some('\\') if self.dialect != Dialect::PowerShell => self.backslash(now),
                Some(c) => now.push(c),
                None => bail!("a quote (\") of the command that begins in line {} is never closed", now.command.line),
            }
        }
    }

    /// A backslash in double quotes escapes little; before anything else (a letter of a Windows path) it stands for itself.
    fn backslash(&mut self, now: &mut Current) {
        let escapes: &[char] = if self.dialect == Dialect::Shell { &['"', '\\', '$', '`', '\n'] } else { &['"'] };
        match self.chars.peek().copied().filter(|c| escapes.contains(c)) {
            Some(c) => {
                self.next();
                if c != '\n' {
                    now.push(c);
                }
            }
            None => now.push('\\'),
        }
    }

    /// `$name` and `${name}`, after the `$`.
    fn variable(&mut self, now: &mut Current) {
        let braced = self.chars.next_if_eq(&'{').is_some();
        let mut name = String::new();
        let part = |c: &char| if braced { *c != '}' && *c != '\n' } else { c.is_ascii_alphanumeric() || "_:@*".contains(*c) };
        while let Some(c) = self.chars.next_if(part) {
            name.push(c);
        }
        if braced {
            self.chars.next_if_eq(&'}');
        }
        if self.dialect == Dialect::PowerShell && now.is_empty() {
            // What a line of PowerShell begins with is assigned to.
            return now.push_text(&format!("${name}"));
        }
        match name.as_str() {
            // What is passed on to the script; nothing, where there is no call.
            "@" | "*" | "args" => {}
            "HOME" | "env:HOME" => now.push_text("$HOME"),
            "env:USERPROFILE" => now.push_text("~"),
            "" if self.chars.peek() == Some(&'(') => now.command.unknown.push("$(…)".to_string()),
            "" => now.push('$'),
            _ => self.put(now, &name, &format!("${name}")),
        }
    }

    /// `@name`, after the `@`: the words of a list, which is filled while the script runs.
    fn splat(&mut self, now: &mut Current) {
        let mut shown = String::from("@");
        while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
            shown.push(c);
        }
        match shown.as_str() {
            // What is passed on to the script.
            "@args" => {}
            "@" => now.push('@'),
            _ => {
                now.push_text(&shown);
                now.command.unknown.push(shown);
            }
        }
    }

    /// `%name%`, after the first `%`.
    fn batch_variable(&mut self, now: &mut Current) {
        let rest: String = self.chars.clone().take_while(|c| c.is_ascii_alphanumeric() || "_:~".contains(*c)).collect();
        if self.chars.next_if_eq(&'*').is_some() {
            return;
        }
        if self.chars.clone().nth(rest.chars().count()) != Some('%') {
            return now.push('%');
        }
        // A name, and the `%` behind it.
        let _ = self.chars.nth(rest.chars().count());
        match rest.to_ascii_uppercase().as_str() {
            "USERPROFILE" | "HOME" => now.push_text("~"),
            // `%%` is one percent sign.
            "" => now.push('%'),
            _ => self.put(now, &rest, &format!("%{rest}%")),
        }
    }

    fn put(&self, now: &mut Current, name: &str, shown: &str) {
        match self.variables.get(name) {
            Some(value) => now.push_text(value),
            None => {
                now.push_text(shown);
                now.command.unknown.push(shown.to_string());
            }
        }
    }
}

/// The variables that a command sets, if that is all it does.
fn assignment(words: &[String], dialect: Dialect) -> Option<Vec<(String, String)>> {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=')?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then(|| (name.to_string(), value.to_string()))
    };
    let first = words.first()?;
    match dialect {
        Dialect::Shell => {
            let words = if first == "export" { &words[1..] } else { words };
            words.iter().map(|word| pair(word)).collect()
        }
        Dialect::Batch if first.eq_ignore_ascii_case("set") => Some(vec![pair(&words[1..].join(" "))?]),
        Dialect::Batch => None,
        Dialect::PowerShell => {
            let text = words.join(" ");
            let (name, value) = text.strip_prefix('$')?.split_once('=')?;
            Some(vec![pair(&format!("{}={}", name.trim(), value.trim()))?])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn words(text: &str, dialect: Dialect) -> Vec<Vec<String>> {
        commands(text, dialect).unwrap().into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn quotes_escapes_and_continued_lines_are_each_shells_own() {
        let shell = "# remark\ncd x && python a.py --a=\"b c\" \\\n  --d 'e \"f\" $g' --h i\\ j --k \"l\\\"m\" --path \"D:\\new\" # end\n";
        assert_eq!(
            words(shell, Dialect::Shell),
            [vec!["cd", "x"], vec!["python", "a.py", "--a=b c", "--d", "e \"f\" $g", "--h", "i j", "--k", "l\"m", "--path", "D:\\new"]]
        );
        let batch =
            "@echo off\r\nREM it's a remark\r\n:: another\r\npython a.py ^\r\n  --p C:\\new\\t --q=\"D:\\a b\" --r it's ^& > log.txt\r\n";
        assert_eq!(
            words(batch, Dialect::Batch),
            [vec!["@echo", "off"], vec!["python", "a.py", "--p", "C:\\new\\t", "--q=D:\\a b", "--r", "it's", "&"]]
        );
        let power = "python a.py `\n --p 'C:\\new' --q \"a `\"b`\"\" 2>&1 | tee x\n";
        assert_eq!(words(power, Dialect::PowerShell), [vec!["python", "a.py", "--p", "C:\\new", "--q", "a \"b\""]]);
        assert_eq!(words("a \"\" ''", Dialect::Shell), [["a", "", ""]]);
        assert_eq!(commands("\n\na\\\n b\nc", Dialect::Shell).unwrap().iter().map(|c| c.line).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn variables_that_the_script_sets_are_put_in_and_others_are_named() {
        let shell = "export A=1 B=\"x y\"\nrun --a $A --b=\"${B}/z\" --c '$A' --d $D/e --h $HOME/x \"$@\"\n";
        let command = &commands(shell, Dialect::Shell).unwrap()[0];
        assert_eq!(command.words, ["run", "--a", "1", "--b=x y/z", "--c", "$A", "--d", "$D/e", "--h", "$HOME/x", ""]);
        assert_eq!(command.unknown, ["$D"]);
        let batch = "set A=C:\\x y\nset \"B=2\"\nrun --a \"%A%\" --b %B% --c 50% --d %NOPE% %*\n";
        let command = &commands(batch, Dialect::Batch).unwrap()[0];
        assert_eq!(command.words, ["run", "--a", "C:\\x y", "--b", "2", "--c", "50%", "--d", "%NOPE%"]);
        assert_eq!(command.unknown, ["%NOPE%"]);
        let power = "$dir = \"D:\\a b\"\n$n=3\nrun --a=$dir --n $n --t $(Get-Date)\n";
        let command = &commands(power, Dialect::PowerShell).unwrap()[0];
        assert_eq!(command.words[..4], ["run", "--a=D:\\a b", "--n", "3"]);
        assert_eq!(command.unknown, ["$(…)"]);
    }

    #[test]
    fn the_dialect_is_told_from_extension_or_text() {
        assert_eq!(Dialect::of("BAT", "a \\\nb"), Dialect::Batch);
        assert_eq!(Dialect::of("txt", "a ^\nb"), Dialect::Batch);
        assert_eq!(Dialect::of("txt", "a `\nb"), Dialect::PowerShell);
        assert_eq!(Dialect::of("", "a --x C:\\y"), Dialect::Batch);
        assert_eq!(Dialect::of("", "a --x /y"), Dialect::Shell);
    }

    #[test]
    fn no_text_whatever_makes_it_panic() {
        let pieces = [
            "'", "\"", "\\", "^", "`", "$", "${", "}", "%", "%a%", "$(", "\n", "\r\n", " ", "#", ">", "&", "|", ";", "=", "set A=1", "ü",
            "--x", "rem ",
        ];
        let mut rng = base::Rng::new(3, "command lines", &[]);
        for _ in 0..3000 {
            let text: String = (0..rng.below(24)).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
            for dialect in [Dialect::Shell, Dialect::Batch, Dialect::PowerShell] {
                let _ = commands(&text, dialect);
            }
        }
    }
}
