//! Drawing: the ratios of a suite, and the lines of an x-y plot, each as an SVG.
//!
//! Lines differ by dashes and markers, not by colour alone, so that they are told apart in black and
//! white. The width suits a column of a page; a telephone shows it at nearly its size.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::Scale;
use crate::bench::curves::{Plot, Point};
use crate::bench::outcome::Outcome;
use crate::bench::table::short_unit;

const WIDTH: u32 = 480;
const TEXT: i32 = 13;
const GREY: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
/// Height of a row of ratios.
const ROW: u32 = 30;
/// Room for the names of cases.
const NAMES: u32 = 176;
/// Letters of a name that fit on a line.
const NAME_LETTERS: usize = 25;
/// Height of a line of the key.
const KEY_ROW: i32 = 18;
/// Height of a plot without its key.
const PLOT: u32 = 300;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    colour: RGBColor,
    /// Length of a dash and of a gap, in pixels; no gap: the line is solid.
    dash: (i32, i32),
    marker: Marker,
    is_filled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Downward,
}

/// Dark enough for white paper, and apart for those who see few colours (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 0, 0),
    RGBColor(0x00, 0x5a, 0x9c),
    RGBColor(0xb8, 0x4a, 0x00),
    RGBColor(0x00, 0x7a, 0x5a),
    RGBColor(0x8e, 0x3a, 0x72),
    RGBColor(0x5c, 0x5c, 0x5c),
];
const DASHES: [(i32, i32); 4] = [(1, 0), (9, 4), (2, 3), (16, 6)];
const MARKERS: [Marker; 5] =
    [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Downward];

impl Look {
    /// That of the line with this index.
    fn of(index: usize) -> Look {
        Look {
            colour: COLOURS[index % COLOURS.len()],
            dash: DASHES[index % DASHES.len()],
            marker: MARKERS[index % MARKERS.len()],
            is_filled: (index / MARKERS.len()).is_multiple_of(2),
        }
    }

    fn stroke(self) -> ShapeStyle {
        self.colour.stroke_width(2)
    }
}

impl Marker {
    fn corners(self) -> Vec<(i32, i32)> {
        match self {
            Marker::Circle => Vec::new(),
            Marker::Square => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
            Marker::Triangle => vec![(0, -5), (5, 4), (-5, 4)],
            Marker::Diamond => vec![(0, -6), (6, 0), (0, 6), (-6, 0)],
            Marker::Downward => vec![(-5, -4), (5, -4), (0, 5)],
        }
    }
}

/// Draws a marker around a pixel.
fn mark(area: &Area, at: (i32, i32), look: Look) -> Result<()> {
    let fill = if look.is_filled { look.colour } else { WHITE }.filled();
    let outline = look.colour.stroke_width(2);
    if look.marker == Marker::Circle {
        area.draw(&Circle::new(at, 4, fill))?;
        area.draw(&Circle::new(at, 4, outline))?;
        return Ok(());
    }
    let mut corners: Vec<(i32, i32)> =
        look.marker.corners().iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
    area.draw(&Polygon::new(corners.clone(), fill))?;
    corners.extend(corners.first().copied());
    area.draw(&PathElement::new(corners, outline))?;
    Ok(())
}

/// Draws a line through pixels.
fn stroke(area: &Area, points: Vec<(i32, i32)>, look: Look) -> Result<()> {
    match look.dash {
        (_, 0) => area.draw(&PathElement::new(points, look.stroke()))?,
        (dash, gap) => {
            area.draw(&DashedPathElement::new(points, dash, gap, look.stroke()))?;
        }
    }
    Ok(())
}

/// Draws an interval with its ends.
fn whiskers(area: &Area, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Result<()> {
    // The ends stand across the line.
    let (across_x, across_y) = if from.0 == to.0 { (4, 0) } else { (0, 4) };
    area.draw(&PathElement::new(vec![from, to], style))?;
    for end in [from, to] {
        let ends = vec![(end.0 - across_x, end.1 - across_y), (end.0 + across_x, end.1 + across_y)];
        area.draw(&PathElement::new(ends, style))?;
    }
    Ok(())
}

fn write(area: &Area, text: &str, at: (i32, i32), anchor: Pos) -> Result<()> {
    let style = TextStyle::from(("sans-serif", TEXT).into_font()).pos(anchor);
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

fn svg(height: u32, draw: impl FnOnce(&Area) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    draw(&area)?;
    area.present()?;
    drop(area);
    Ok(text)
}

/// Draws the axes of a plot on an area, with room for `names` to the left; says which pixel of the whole
/// drawing a position is.
fn axes(
    area: &Area,
    names: u32,
    (x, x_name): (&Scale, &str),
    (y, y_name): (&Scale, &str),
) -> Result<impl Fn((f64, f64)) -> (i32, i32)> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(8)
        .margin_right(14)
        .x_label_area_size(42)
        .y_label_area_size(names)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .bold_line_style(GREY)
        .light_line_style(TRANSPARENT)
        .axis_style(BLACK)
        .label_style(("sans-serif", TEXT))
        .axis_desc_style(("sans-serif", TEXT))
        .x_labels(x.ticks.len())
        .y_labels(y.ticks.len())
        .x_label_formatter(&|position| x.label(*position))
        .y_label_formatter(&|position| y.label(*position))
        .x_desc(x_name)
        .y_desc(y_name)
        .draw()?;
    Ok(move |position| chart.backend_coord(&position))
}

/// The ratios of these outcomes with their intervals and targets, one row each; `None` where no outcome
/// has a ratio.
pub fn ratios(outcomes: &[&Outcome]) -> Result<Option<String>> {
    let rows: Vec<(&Outcome, f64)> =
        outcomes.iter().filter_map(|outcome| Some((*outcome, outcome.ratio?))).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let all = rows.iter().flat_map(|(outcome, ratio)| {
        let target = ratio_target(outcome).map(|(bound, _)| bound);
        [Some(*ratio), outcome.ratio_low, outcome.ratio_high, target].into_iter().flatten()
    });
    let x = Scale::of_ratios(all);
    let count = rows.len() as f64;
    let y = Scale::rows(rows.len());
    let height = rows.len() as u32 * ROW + 56;
    let text = svg(height, |area| {
        let place = axes(area, NAMES, (&x, "Ferry over what it is compared with"), (&y, ""))?;
        let pixel = |ratio: f64, row: usize| place((x.at(ratio), count - row as f64 - 0.5));
        let one = [0.0, count].map(|end| place((x.at(1.0), end)));
        area.draw(&PathElement::new(one.to_vec(), BLACK.stroke_width(1)))?;
        for (row, (outcome, ratio)) in rows.iter().enumerate() {
            let at = pixel(*ratio, row);
            name(area, &outcome.case, at.1)?;
            if let Some((bound, is_most)) = ratio_target(outcome) {
                target(area, pixel(bound, row), is_most)?;
            }
            if let (Some(low), Some(high)) = (outcome.ratio_low, outcome.ratio_high) {
                whiskers(area, pixel(low, row), pixel(high, row), BLACK.stroke_width(2))?;
            }
            let is_filled = outcome.met != Some(false);
            let marker = if outcome.met.is_some() { Marker::Circle } else { Marker::Diamond };
            mark(area, at, Look { marker, is_filled, ..Look::of(0) })?;
        }
        Ok(())
    })?;
    Ok(Some(text))
}

/// The bound of the ratio, and whether it is the largest one wanted.
fn ratio_target(outcome: &Outcome) -> Option<(f64, bool)> {
    match outcome.target_of.as_str() {
        "ratio <=" => Some((outcome.target?, true)),
        "ratio >=" => Some((outcome.target?, false)),
        _ => None,
    }
}

/// A bar at the target with an arrow to the side where Ferry wants to be.
fn target(area: &Area, at: (i32, i32), is_most: bool) -> Result<()> {
    let half = ROW as i32 / 2 - 4;
    let bar = vec![(at.0, at.1 - half), (at.0, at.1 + half)];
    area.draw(&PathElement::new(bar, COLOURS[2].stroke_width(2)))?;
    let tip = if is_most { at.0 - 6 } else { at.0 + 6 };
    for y in [at.1 - half, at.1 + half] {
        let arrow = vec![(at.0, y - 3), (tip, y), (at.0, y + 3)];
        area.draw(&Polygon::new(arrow, COLOURS[2].filled()))?;
    }
    Ok(())
}

/// The name of a row, on one line or two.
fn name(area: &Area, name: &str, y: i32) -> Result<()> {
    let lines = broken(name, NAME_LETTERS);
    let first = y - (lines.len() as i32 - 1) * (TEXT + 1) / 2;
    for (at, line) in lines.iter().enumerate() {
        let at = (NAMES as i32 - 8, first + at as i32 * (TEXT + 1));
        write(area, line, at, Pos::new(HPos::Right, VPos::Center))?;
    }
    Ok(())
}

/// A text on at most two lines of so many letters, broken between words where it can be.
fn broken(text: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let count = lines.len();
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() || line.chars().count() + 1 + word.chars().count() <= letters {
            *line = format!("{line} {word}").trim_start().to_owned();
        } else if count < 2 {
            lines.push(word.to_owned());
        } else {
            *line = format!("{line} {word}");
        }
    }
    for line in &mut lines {
        if line.chars().count() > letters {
            *line = line.chars().take(letters - 1).chain(['…']).collect();
        }
    }
    lines
}

/// The lines of a plot with their intervals, and a key to them above.
pub fn curves(plot: &Plot) -> Result<String> {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let (unit, many) = short_unit(plot.unit, points().map(|point| point.y));
    let x = Scale::of_varied(&plot.values());
    let y = Scale::of_values(points().flat_map(|point| [point.low / many, point.high / many]));
    let key = plot.lines.len() as i32 * KEY_ROW + 4;
    svg(PLOT + key as u32, |area| {
        for (at, line) in plot.lines.iter().enumerate() {
            let (y, look) = (at as i32 * KEY_ROW + KEY_ROW / 2 + 2, Look::of(at));
            stroke(area, vec![(10, y), (58, y)], look)?;
            mark(area, (34, y), look)?;
            write(area, &line.name, (68, y), Pos::new(HPos::Left, VPos::Center))?;
        }
        let (_, below) = area.split_vertically(key);
        let names = [axis_name(plot.x_label, &x), quantity(&unit, plot.title, &y)];
        let place = axes(&below, 62, (&x, &names[0]), (&y, &names[1]))?;
        let pixel = |at: f64, value: f64| place((x.at(at), y.at(value / many)));
        for (at, line) in plot.lines.iter().enumerate() {
            let look = Look::of(at);
            for Point { x, low, high, .. } in &line.points {
                if low < high {
                    let thin = look.colour.stroke_width(1);
                    whiskers(area, pixel(*x, *low), pixel(*x, *high), thin)?;
                }
            }
            let middle: Vec<_> = line.points.iter().map(|point| pixel(point.x, point.y)).collect();
            stroke(area, middle.clone(), look)?;
            for at in middle {
                mark(area, at, look)?;
            }
        }
        Ok(())
    })
}

/// What an axis shows in a unit, and whether equal distances are equal factors. What has no unit is what
/// the title says.
fn quantity(unit: &str, title: &str, scale: &Scale) -> String {
    let name = match unit {
        "ns" | "µs" | "us" | "ms" | "s" | "min" => format!("time ({unit})"),
        "" => title.rsplit(": ").next().unwrap_or(title).to_owned(),
        unit if unit.ends_with("/s") => format!("rate ({unit})"),
        unit => unit.to_owned(),
    };
    axis_name(&name, scale)
}

fn axis_name(name: &str, scale: &Scale) -> String {
    if scale.is_logarithmic() { format!("{name}, log scale") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_without_their_colours() {
        let looks: Vec<_> = (0..20).map(Look::of).collect();
        for (at, one) in looks.iter().enumerate() {
            let grey = |look: &Look| (look.dash, look.marker, look.is_filled);
            assert!(looks[..at].iter().all(|other| grey(other) != grey(one)), "line {at}");
        }
    }

    #[test]
    fn colours_are_dark_enough_for_paper() {
        for RGBColor(red, green, blue) in COLOURS {
            let grey = 0.3 * f64::from(red) + 0.59 * f64::from(green) + 0.11 * f64::from(blue);
            assert!(grey < 128.0);
        }
    }

    #[test]
    fn axes_say_what_they_show_and_in_which_unit() {
        let near = Scale::of_values([1.0, 2.0].into_iter());
        let far = Scale::of_values([1.0, 2000.0].into_iter());
        assert_eq!(quantity("ns", "batches", &near), "time (ns)");
        assert_eq!(quantity("M/s", "batches", &far), "rate (M/s), log scale");
        assert_eq!(quantity("", "output: traps per call", &near), "traps per call");
        assert_eq!(quantity("cycles", "output", &near), "cycles");
    }

    #[test]
    fn long_names_go_on_two_lines() {
        assert_eq!(broken("getppid, local", 20), ["getppid, local"]);
        assert_eq!(
            broken("batches of 64, io_uring SQPOLL", 20),
            ["batches of 64,", "io_uring SQPOLL"]
        );
        let long = broken("a case with a name that nobody wants to read", 12);
        assert_eq!(long, ["a case with", "a name that…"]);
        assert_eq!(broken("", 5), [""]);
    }
}
