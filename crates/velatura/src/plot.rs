//! A chart of curves over steps, with numbers on its axes: what `plan --plot` draws.

use crate::canvas::{Canvas, INK, LETTER};
use train::sample::Picture;

const SIZE: [usize; 2] = [960, 540];
/// Of the area that the curves lie in.
const LEFT: usize = 88;
const RIGHT: usize = 24;
const TOP: usize = 48;
const BOTTOM: usize = 48;
const GRID: [u8; 3] = [225; 3];
/// Told apart also by those who see no red or no green (Okabe & Ito, "Color Universal Design", 2008).
const COLORS: [[u8; 3]; 6] = [[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [230, 159, 0]];

/// One curve: values of step 1 and of steps at equal distances from there on.
pub struct Line {
    pub name: String,
    pub values: Vec<f64>,
}

/// Where the curves lie, and what its edges stand for.
struct Area {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    steps: usize,
    /// The value at the top; 0 is at the bottom.
    most: f64,
}

/// Draws `lines`, which have equally many values, `stride` steps apart.
pub fn chart(title: &str, stride: usize, lines: &[Line]) -> Picture {
    let mut canvas = Canvas::new(SIZE[0], SIZE[1]);
    let most = lines.iter().flat_map(|line| &line.values).copied().fold(0.0, f64::max);
    let spacing = spacing(if most > 0.0 { most } else { 1.0 }, 6);
    let area = Area {
        left: LEFT,
        top: TOP,
        width: SIZE[0] - LEFT - RIGHT,
        height: SIZE[1] - TOP - BOTTOM,
        steps: lines.iter().map(|line| line.values.len()).max().map_or(0, |values| values.saturating_sub(1) * stride + 1),
        most: spacing * (most / spacing).ceil().max(1.0),
    };
    canvas.text(LEFT, 8, title);
    area.axes(&mut canvas, spacing);
    for (i, line) in lines.iter().enumerate() {
        area.curve(&mut canvas, &line.values, COLORS[i % COLORS.len()]);
    }
    legend(&mut canvas, lines);
    canvas.finish()
}

fn legend(canvas: &mut Canvas, lines: &[Line]) {
    let mut left = LEFT;
    for (i, line) in lines.iter().enumerate() {
        canvas.fill([left, 30], [12, 4], COLORS[i % COLORS.len()]);
        canvas.text(left + 16, 28, &line.name);
        left += 16 + (line.name.chars().count() + 3) * LETTER;
    }
}

impl Area {
    fn x(&self, step: f64) -> usize {
        let last = self.steps.saturating_sub(1).max(1) as f64;
        self.left + ((step - 1.0) / last * (self.width - 1) as f64).round() as usize
    }

    fn y(&self, value: f64) -> usize {
        let share = (value / self.most).clamp(0.0, 1.0);
        self.top + ((1.0 - share) * (self.height - 1) as f64).round() as usize
    }

    /// Grid lines and the numbers beside them, `spacing` apart upwards.
    fn axes(&self, canvas: &mut Canvas, spacing: f64) {
        for i in 0..=(self.most / spacing).round() as usize {
            let (value, label) = (i as f64 * spacing, number(i as f64 * spacing));
            canvas.fill([self.left, self.y(value)], [self.width, 1], GRID);
            canvas.text(self.left.saturating_sub(LETTER * (label.len() + 1)), self.y(value).saturating_sub(LETTER / 2), &label);
        }
        let between = spacing_of_steps(self.steps);
        let marks = std::iter::once(1).chain((1..=self.steps / between).map(|i| i * between).filter(|step| *step > 1));
        for step in marks {
            // Step 1 gives way to a mark that would stand in its label.
            if step == 1 && between < self.steps && self.x(between as f64) < self.left + 4 * LETTER {
                continue;
            }
            let (x, label) = (self.x(step as f64), step.to_string());
            canvas.fill([x, self.top], [1, self.height], GRID);
            canvas.text(x.saturating_sub(label.len() * LETTER / 2), self.top + self.height + LETTER, &label);
        }
        canvas.text(self.left + self.width / 2 - 2 * LETTER, self.top + self.height + 3 * LETTER, "step");
        canvas.fill([self.left, self.top + self.height - 1], [self.width, 1], INK);
        canvas.fill([self.left, self.top], [1, self.height], INK);
    }

    /// In each column of pixels everything that the curve passes through, so that no spike is lost.
    fn curve(&self, canvas: &mut Canvas, values: &[f64], color: [u8; 3]) {
        let Some(last) = values.len().checked_sub(1) else { return };
        let place = |column: usize| column as f64 / (self.width - 1) as f64 * last as f64;
        let at = |place: f64| {
            let first = (place as usize).min(last);
            values[first] + (place - first as f64) * (values[(first + 1).min(last)] - values[first])
        };
        for column in 0..self.width {
            let (from, to) = (place(column), place((column + 1).min(self.width - 1)));
            let between = &values[(from.ceil() as usize).min(last)..=(to.floor() as usize).min(last).max((from.ceil() as usize).min(last))];
            let inside = between.iter().copied().filter(|_| from.ceil() <= to.floor());
            let ys: Vec<usize> = [at(from), at(to)].into_iter().chain(inside).map(|value| self.y(value)).collect();
            let (top, bottom) = ys.iter().fold((usize::MAX, 0), |(top, bottom), y| (top.min(*y), bottom.max(*y)));
            canvas.fill([self.left + column, top.saturating_sub(1)], [1, bottom - top + 2], color);
        }
    }
}

/// A round distance (1, 2 or 5 times a power of ten) at which about `marks` marks cover `most`.
fn spacing(most: f64, marks: usize) -> f64 {
    let rough = most / marks as f64;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|round| round * power).find(|spacing| *spacing >= rough).unwrap_or(rough)
}

fn spacing_of_steps(steps: usize) -> usize {
    (spacing(steps.max(1) as f64, 8).ceil() as usize).max(1)
}

/// `2e-5`, `1.5e-4`, `0`.
fn number(value: f64) -> String {
    if value == 0.0 { "0".to_string() } else { format!("{value:.1e}").replace(".0e", "e") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: Vec<f64>) -> Line {
        Line { name: "unet".into(), values }
    }

    /// The row in which a column of the chart's area has a colour, counted from the bottom as a share of the height.
    fn height(picture: &Picture, share: f64, color: [u8; 3]) -> Option<f64> {
        let width = picture.width as usize;
        let x = LEFT + (share * (SIZE[0] - LEFT - RIGHT - 1) as f64).round() as usize;
        let rows = TOP - 1..SIZE[1] - BOTTOM;
        let row = rows.into_iter().find(|y| picture.pixels[(y * width + x) * 3..][..3] == color)?;
        Some(1.0 - (row as f64 + 1.0 - TOP as f64) / (SIZE[1] - TOP - BOTTOM - 1) as f64)
    }

    #[test]
    fn curves_stand_at_their_values() {
        let (falling, flat) = ((0..100).map(|i| 1e-4 * (1.0 - f64::from(i) / 99.0)).collect(), vec![5e-5; 100]);
        let picture = chart("linear", 1, &[line(falling), line(flat)]);
        assert_eq!((picture.width, picture.height), (960, 540));
        for share in [0.25, 0.75] {
            assert!((height(&picture, share, COLORS[0]).unwrap() - (1.0 - share)).abs() < 0.01);
            assert!((height(&picture, share, COLORS[1]).unwrap() - 0.5).abs() < 0.01);
        }
    }

    #[test]
    fn a_spike_of_one_step_among_many_is_seen_and_no_length_is_too_short() {
        let mut values = vec![0.1; 100_000];
        values[50_000] = 1.0;
        let picture = chart("spike", 1, &[line(values)]);
        let top = |share: f64| height(&picture, share, COLORS[0]).unwrap();
        let tallest = (0..=100).map(|i| top(0.495 + f64::from(i) / 10_000.0)).fold(0.0, f64::max);
        assert!(tallest > 0.98 && top(0.2) < 0.12, "{tallest}");
        for values in [vec![], vec![1e-4], vec![0.0; 3]] {
            chart("short", 1, &[line(values)]);
        }
    }

    /// Steps that are left out change the marks below the curve, and nothing of the curve.
    #[test]
    fn thinned_curves_are_drawn_over_all_their_steps() {
        let values: Vec<f64> = (0..101).map(|i| f64::from(i) / 100.0).collect();
        let [every, tenth] = [1, 10].map(|stride| chart("thinned", stride, &[line(values.clone())]).pixels);
        let border = (TOP + SIZE[1] - TOP - BOTTOM) * SIZE[0] * 3;
        let blue = |pixels: &[u8]| pixels.as_chunks::<3>().0.iter().map(|p| *p == COLORS[0]).collect::<Vec<_>>();
        assert!(blue(&every[..border]) == blue(&tenth[..border]) && every[border..] != tenth[border..]);
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!([1e-4, 3.3e-4, 0.9].map(|most| number(spacing(most, 6))), ["2e-5", "1e-4", "2e-1"]);
        assert_eq!([1, 10, 500, 12_345].map(spacing_of_steps), [1, 2, 100, 2000]);
    }
}
