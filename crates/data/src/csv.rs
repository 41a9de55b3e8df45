//! Tables in comma- (or tab-) separated text: fields in quotes may hold separators, line ends and doubled quotes (RFC 4180).

/// The fields of a row, with the line that it begins in.
pub type Row = (usize, Vec<String>);

/// Cuts a table into rows; blank lines are none.
pub fn rows(text: &str, separator: char) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let (mut fields, mut field) = (Vec::new(), String::new());
    let (mut line, mut begin, mut quoted) = (1, 1, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        line += usize::from(c == '\n');
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' if quoted => quoted = false,
            '"' if field.trim().is_empty() => {
                field.clear();
                quoted = true;
            }
            '\n' if !quoted => {
                fields.push(std::mem::take(&mut field));
                push(&mut rows, begin, std::mem::take(&mut fields));
                begin = line;
            }
            c if c == separator && !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    push(&mut rows, begin, fields);
    rows
}

fn push(rows: &mut Vec<Row>, line: usize, fields: Vec<String>) {
    if fields.iter().any(|field| !field.trim().is_empty()) {
        rows.push((line, fields));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotes_protect_separators_line_ends_and_quotes() {
        let rows = super::rows("file,text\n\n a.png ,\"one, two\nthree \"\"x\"\"\"\nb.png,\n", ',');
        let texts: Vec<(usize, Vec<&str>)> = rows.iter().map(|(line, f)| (*line, f.iter().map(String::as_str).collect())).collect();
        assert_eq!(texts, [(1, vec!["file", "text"]), (3, vec![" a.png ", "one, two\nthree \"x\""]), (5, vec!["b.png", ""])]);
        assert_eq!(super::rows("a\tb,c", '\t')[0].1, ["a", "b,c"]);
        assert!(super::rows("\n \n", ',').is_empty());
    }
}
