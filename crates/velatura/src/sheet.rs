//! A contact sheet: rows of pictures with labels, for people to look at.

use crate::canvas::Canvas;
use anyhow::{Context, Result, ensure};
use train::sample::Picture;

const MARGIN: usize = 8;
/// Height of a line of text.
const LINE: usize = 12;

/// One row of pictures of equal size, with a title over it.
pub struct Row<'a> {
    pub title: &'a str,
    pub pictures: &'a [Picture],
}

/// Draws `rows` below each other, every picture enlarged `zoom` times; `labels` stand under the columns of the last row.
pub fn sheet(rows: &[Row], labels: &[String], zoom: usize) -> Result<Picture> {
    let first = rows.first().and_then(|r| r.pictures.first()).context("a contact sheet needs a picture")?;
    let (width, height) = (first.width as usize * zoom, first.height as usize * zoom);
    let columns = labels.len();
    let same = |p: &Picture| (p.width, p.height) == (first.width, first.height);
    ensure!(rows.iter().all(|r| r.pictures.len() == columns && r.pictures.iter().all(same)), "a contact sheet's rows must fit each other");
    let label_lines = labels.iter().map(|l| wrap(l, width / 8).len()).max().unwrap_or(0);
    let row_height = LINE + MARGIN / 2 + height + MARGIN;
    let mut canvas = Canvas::new(MARGIN + columns * (width + MARGIN), MARGIN + rows.len() * row_height + label_lines * LINE + MARGIN);
    for (i, row) in rows.iter().enumerate() {
        let top = MARGIN + i * row_height;
        canvas.text(MARGIN, top, row.title);
        for (j, picture) in row.pictures.iter().enumerate() {
            canvas.picture(MARGIN + j * (width + MARGIN), top + LINE + MARGIN / 2, picture, zoom);
        }
    }
    for (j, label) in labels.iter().enumerate() {
        for (k, line) in wrap(label, width / 8).iter().enumerate() {
            canvas.text(MARGIN + j * (width + MARGIN), MARGIN + rows.len() * row_height + k * LINE, line);
        }
    }
    Ok(canvas.finish())
}

/// Breaks a text into lines of at most `letters` letters, at spaces where there are some.
fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(color: u8) -> Picture {
        Picture { width: 4, height: 2, pixels: vec![color; 24], parameters: String::new() }
    }

    #[test]
    fn pictures_stand_where_the_layout_says_and_labels_wrap() {
        let (before, after) = ([plain(10), plain(20)], [plain(30), plain(40)]);
        let rows = [Row { title: "before", pictures: &before }, Row { title: "after", pictures: &after }];
        let sheet = sheet(&rows, &["a".into(), "b c".into()], 4).unwrap();
        let at = |x: usize, y: usize| sheet.pixels[(y * sheet.width as usize + x) * 3];
        let top = MARGIN + LINE + MARGIN / 2;
        assert_eq!((at(MARGIN, top), at(MARGIN + 15, top + 7)), (10, 10));
        assert_eq!(at(MARGIN + 16 + MARGIN, top), 20);
        assert_eq!(at(MARGIN, top + LINE + MARGIN / 2 + 8 + MARGIN), 30);
        assert_eq!(wrap("a smiling face", 10), ["a smiling", "face"]);
        assert!(super::sheet(&rows[..1], &["one".into()], 4).is_err());
    }
}
