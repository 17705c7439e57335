//! Plots as SVG: lines and bars, with axes, units and a legend.
//!
//! Written by hand because it is small: two kinds of plot, no dependency, and the same bytes on every
//! machine.

use super::number::format_number;
use crate::generator::decimal_logarithm;
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 56.0;
const LEGEND_LINE: f64 = 18.0;

/// Colours that people with colour blindness tell apart too (Okabe and Ito, "Color Universal
/// Design", 2008).
const COLORS: [&str; 8] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933"];

/// How lines of the paper are drawn.
const BROKEN: &str = "stroke-dasharray=\"6 4\"";

/// What an axis says and how it counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What is counted, with its unit: `throughput (op/s)`.
    pub label: String,
    /// Powers of ten evenly apart. Numbers at or below zero are left out then.
    pub logarithmic: bool,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), logarithmic: false }
    }

    /// A logarithmic axis.
    pub fn logarithmic(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), logarithmic: true }
    }
}

/// Lines over a common x axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Horizontal.
    pub x: Axis,
    /// Name and points of each line.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
    /// Name and points of what the paper says, drawn broken: the first in the colour of the first of `series`, and so on.
    pub paper: Vec<(String, Vec<(f64, f64)>)>,
}

/// Bars in groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Name of each series and its bar in each group, absent where there is no number.
    pub series: Vec<(String, Vec<Option<f64>>)>,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Lines.
    Lines(Lines),
    /// Bars.
    Bars(Bars),
}

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Part of its file name.
    pub name: String,
    /// Title above it: what is shown.
    pub title: String,
    /// Below the title, behind the quantity and its unit: what it was measured on.
    pub medium: String,
    /// Vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub figure: Figure,
}

/// Maps numbers to positions along one axis.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale for these numbers. Linear ones begin at zero unless a number is below it; logarithmic
    /// ones at a power of ten.
    fn new(numbers: impl Iterator<Item = f64>, axis: &Axis, from_zero: bool, from: f64, to: f64) -> Scale {
        let usable = numbers.filter(|number| number.is_finite() && (!axis.logarithmic || *number > 0.0));
        let (mut low, mut high) =
            usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| (low.min(number), high.max(number)));
        if low > high {
            (low, high) = if axis.logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if axis.logarithmic {
            low = ten_to(decimal_logarithm(low).floor());
            high = ten_to((decimal_logarithm(high) - 1e-9).ceil()).max(low * 10.0);
        } else {
            if from_zero {
                (low, high) = (low.min(0.0), high.max(0.0));
            }
            if high <= low {
                high = low + 1.0;
            }
            let step = nice_step((high - low) / 5.0);
            high = (high / step - 1e-9).ceil() * step;
            low = (low / step + 1e-9).floor() * step;
        }
        Scale { low, high, logarithmic: axis.logarithmic, from, to }
    }

    fn place(&self, number: f64) -> Option<f64> {
        if !number.is_finite() || (self.logarithmic && number <= 0.0) {
            return None;
        }
        let share = if self.logarithmic {
            let low = decimal_logarithm(self.low);
            (decimal_logarithm(number) - low) / (decimal_logarithm(self.high) - low)
        } else {
            (number - self.low) / (self.high - self.low)
        };
        Some(self.from + share * (self.to - self.from))
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.logarithmic {
            let mut tick = self.low;
            while tick <= self.high * 1.001 {
                ticks.push(tick);
                tick *= 10.0;
            }
        } else {
            let step = nice_step((self.high - self.low) / 5.0);
            let count = ((self.high - self.low) / step).round() as usize;
            ticks.extend((0..=count).map(|index| self.low + index as f64 * step));
        }
        ticks
    }
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `step`.
fn nice_step(step: f64) -> f64 {
    let power = ten_to(decimal_logarithm(step).floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|nice| *nice >= step * 0.999)
        .unwrap_or(step)
}

fn ten_to(exponent: f64) -> f64 {
    10f64.powi(exponent as i32)
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Plot {
    /// The plot as an SVG document.
    pub fn to_svg(&self) -> String {
        // Names, the number of their colours, and whether they are the paper's lines.
        let names: Vec<(&str, usize, bool)> = match &self.figure {
            Figure::Lines(lines) => {
                let series = lines.series.iter().enumerate().map(|(index, (name, _))| (name.as_str(), index, false));
                let paper = lines.paper.iter().enumerate().map(|(index, (name, _))| (name.as_str(), index, true));
                series.chain(paper).collect()
            }
            Figure::Bars(bars) => {
                bars.series.iter().enumerate().map(|(index, (name, _))| (name.as_str(), index, false)).collect()
            }
        };
        let longest = names.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0) as f64;
        let legend_width = if names.len() > 1 { (longest * 7.2 + 40.0).min(320.0) } else { 0.0 };
        let right = WIDTH - RIGHT - legend_width;
        let height = match &self.figure {
            Figure::Lines(_) => HEIGHT,
            Figure::Bars(bars) => HEIGHT.max(HEIGHT - BOTTOM + Slant::of(&bars.groups, right).depth()),
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let measured = self.subtitle();
        let _ = writeln!(svg, "<title>{}: {}</title>", escape(&self.title), escape(&measured));
        text(&mut svg, LEFT, 22.0, "start", "font-size=\"15\" font-weight=\"bold\"", &self.title);
        text(&mut svg, LEFT, 40.0, "start", "fill=\"#444444\"", &measured);
        match &self.figure {
            Figure::Lines(lines) => self.draw_lines(&mut svg, lines, right),
            Figure::Bars(bars) => self.draw_bars(&mut svg, bars, right),
        }
        if names.len() > 1 {
            for (line, &(name, index, is_paper)) in names.iter().enumerate() {
                let y = TOP + 8.0 + line as f64 * LEGEND_LINE;
                let color = COLORS[index % COLORS.len()];
                let x = right + 14.0;
                let _ = if is_paper {
                    writeln!(svg, "<path d=\"M{x:.1} {:.1}h14\" stroke=\"{color}\" {BROKEN}/>", y - 4.0)
                } else {
                    writeln!(
                        svg,
                        "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{color}\"/>",
                        y - 10.0
                    )
                };
                text(&mut svg, right + 32.0, y, "start", "", name);
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The quantity with its unit, the medium, and what a reader of bars must not take for granted.
    fn subtitle(&self) -> String {
        let cut = match &self.figure {
            Figure::Bars(_) if self.y.logarithmic => "; logarithmic axis, cut: bars do not begin at zero",
            Figure::Bars(_) => "",
            Figure::Lines(_) if self.y.logarithmic => "; logarithmic axis",
            Figure::Lines(_) => "",
        };
        format!("{}; {}{cut}", self.y.label, self.medium)
    }

    fn draw_y_axis(&self, svg: &mut String, scale: &Scale, right: f64) {
        for tick in scale.ticks() {
            let Some(y) = scale.place(tick) else { continue };
            let _ =
                writeln!(svg, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>");
            text(svg, LEFT - 6.0, y + 4.0, "end", "", &tick_label(tick));
        }
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let turn = format!("transform=\"rotate(-90 18 {middle:.1})\"");
        text(svg, 18.0, middle, "middle", &turn, &self.y.label);
    }

    fn draw_frame(svg: &mut String, right: f64) {
        let bottom = HEIGHT - BOTTOM;
        let _ = writeln!(svg, "<path d=\"M{LEFT} {TOP} V{bottom} H{right:.1}\" fill=\"none\" stroke=\"#333333\"/>");
    }

    fn draw_lines(&self, svg: &mut String, lines: &Lines, right: f64) {
        let bottom = HEIGHT - BOTTOM;
        let points = || lines.series.iter().chain(&lines.paper).flat_map(|(_, points)| points.iter());
        let x_scale = Scale::new(points().map(|point| point.0), &lines.x, false, LEFT, right);
        let y_scale = Scale::new(points().map(|point| point.1), &self.y, true, bottom, TOP);
        self.draw_y_axis(svg, &y_scale, right);
        for tick in x_scale.ticks() {
            let Some(x) = x_scale.place(tick) else { continue };
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#333333\"/>",
                bottom + 5.0
            );
            text(svg, x, bottom + 18.0, "middle", "", &tick_label(tick));
        }
        text(svg, (LEFT + right) / 2.0, HEIGHT - 14.0, "middle", "", &lines.x.label);
        Self::draw_frame(svg, right);
        let series = lines.series.iter().enumerate().map(|(index, (_, points))| (index, points, ""));
        let paper = lines.paper.iter().enumerate().map(|(index, (_, points))| (index, points, BROKEN));
        for (index, points, style) in series.chain(paper) {
            let color = COLORS[index % COLORS.len()];
            let placed: Vec<String> = points
                .iter()
                .filter_map(|&(x, y)| Some(format!("{:.1},{:.1}", x_scale.place(x)?, y_scale.place(y)?)))
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\" stroke-linejoin=\"round\" {style}/>",
                placed.join(" ")
            );
        }
    }

    fn draw_bars(&self, svg: &mut String, bars: &Bars, right: f64) {
        let bottom = HEIGHT - BOTTOM;
        let numbers = bars.series.iter().flat_map(|(_, values)| values.iter().flatten().copied());
        let scale = Scale::new(numbers, &self.y, true, bottom, TOP);
        self.draw_y_axis(svg, &scale, right);
        let group_width = (right - LEFT) / bars.groups.len().max(1) as f64;
        let bar_width = group_width * 0.8 / bars.series.len().max(1) as f64;
        let zero = scale.place(0.0).unwrap_or(bottom);
        let slant = Slant::of(&bars.groups, right);
        for (group, name) in bars.groups.iter().enumerate() {
            let left = LEFT + group as f64 * group_width;
            let middle = left + group_width / 2.0;
            if slant.degrees > 0.0 {
                let y = bottom + 14.0;
                let turn = format!("font-size=\"10\" transform=\"rotate(-{} {middle:.1} {y:.1})\"", slant.degrees);
                text(svg, middle, y, "end", &turn, name);
            } else {
                text(svg, middle, bottom + 18.0, "middle", "", name);
            }
            for (index, (_, values)) in bars.series.iter().enumerate() {
                let Some(value) = values.get(group).copied().flatten() else { continue };
                let Some(y) = scale.place(value) else { continue };
                let x = left + group_width * 0.1 + index as f64 * bar_width;
                let (upper, height) = (y.min(zero), (y - zero).abs());
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{upper:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\"/>",
                    bar_width * 0.92,
                    COLORS[index % COLORS.len()]
                );
                if bar_width > 34.0 {
                    text(svg, x + bar_width * 0.46, upper - 3.0, "middle", "font-size=\"10\"", &tick_label(value));
                }
            }
        }
        Self::draw_frame(svg, right);
    }
}

/// How the names of groups are turned so that none runs into its neighbour or out of the picture.
struct Slant {
    degrees: f64,
    /// Sine of the angle: how much of a name's length goes down.
    down: f64,
    longest: f64,
}

impl Slant {
    fn of(groups: &[String], right: f64) -> Slant {
        let letters = |name: &String| name.chars().count() as f64;
        let longest = groups.iter().map(letters).fold(0.0, f64::max);
        let group_width = (right - LEFT) / groups.len().max(1) as f64;
        if longest * 7.0 <= group_width {
            return Slant { degrees: 0.0, down: 0.0, longest };
        }
        // The gentlest angle at which every name begins inside the picture. Sines and cosines stand here because those
        // of the system differ from machine to machine.
        let fits = |cosine: f64| {
            let ends = (0..groups.len()).map(|group| LEFT + (group as f64 + 0.5) * group_width);
            ends.zip(groups).all(|(end, name)| end - letters(name) * LETTER * cosine >= 4.0)
        };
        let angles = [(25.0, 0.423, 0.906), (40.0, 0.643, 0.766), (55.0, 0.819, 0.574), (70.0, 0.940, 0.342)];
        let angle = angles.into_iter().find(|&(.., cosine)| fits(cosine));
        let (degrees, down, _) = angle.unwrap_or((90.0, 1.0, 0.0));
        Slant { degrees, down, longest }
    }

    /// What the names take below the axis.
    fn depth(&self) -> f64 {
        (self.longest * LETTER * self.down + 24.0).ceil()
    }
}

/// Width of a letter of a slanted name, about.
const LETTER: f64 = 5.6;

/// A number short enough for an axis: `1.5M` rather than `1,500,000`.
fn tick_label(number: f64) -> String {
    let magnitude = number.abs();
    let (divisor, suffix) = match magnitude {
        m if m >= 1e9 => (1e9, "G"),
        m if m >= 1e6 => (1e6, "M"),
        m if m >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let text = format_number((number / divisor * 1e6).round() / 1e6);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, attributes: &str, content: &str) {
    let gap = if attributes.is_empty() { "" } else { " " };
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{gap}{attributes}>{}</text>",
        escape(content)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    #[test]
    fn lines_have_axes_units_and_a_legend() {
        let series = vec![
            ("read <fast>".to_owned(), vec![(0.0, 10.0), (1.0, 1500.0), (2.0, f64::NAN)]),
            ("write".to_owned(), vec![(0.0, 0.0), (2.0, 700.0)]),
        ];
        let plot = Plot {
            name: "x".into(),
            title: "A & B".into(),
            medium: "a disk".into(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Lines(Lines {
                x: Axis::linear("time (s)"),
                series,
                paper: vec![("read, paper".to_owned(), vec![(0.0, 12.0), (2.0, 12.0)])],
            }),
        };
        let svg = plot.to_svg();
        for wanted in [
            "throughput (op/s); a disk<",
            "time (s)",
            "A &amp; B",
            ">read, paper<",
            "read &lt;fast&gt;",
            ">write<",
            ">1,500<",
        ] {
            assert!(svg.contains(wanted), "'{wanted}' is not in\n{svg}");
        }
        assert_eq!(count(&svg, "<polyline"), 3);
        // The paper's line and its mark in the legend.
        assert_eq!(count(&svg, "stroke-dasharray"), 2);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn bars_leave_out_what_is_absent() {
        let plot = Plot {
            name: "x".into(),
            title: "t".into(),
            medium: "an SSD".into(),
            y: Axis::logarithmic("time (us)"),
            figure: Figure::Bars(Bars {
                groups: vec!["get".into(), "put".into()],
                series: vec![("a".into(), vec![Some(1.0), None]), ("b".into(), vec![Some(100.0), Some(0.0)])],
            }),
        };
        // The background, two legend marks and two bars: zero has no place on a logarithmic axis.
        let svg = plot.to_svg();
        assert_eq!(count(&svg, "<rect"), 5);
        assert!(svg.contains("time (us); an SSD; logarithmic axis, cut: bars do not begin at zero"), "{svg}");
    }

    #[test]
    fn bars_on_a_linear_axis_begin_at_zero() {
        let bars = |values: Vec<Option<f64>>| Plot {
            name: "x".into(),
            title: "t".into(),
            medium: "m".into(),
            y: Axis::linear("n"),
            figure: Figure::Bars(Bars { groups: vec!["a".into(), "b".into()], series: vec![("s".into(), values)] }),
        };
        for values in [[5000.0, 5001.0], [-3.0, -2.0], [-1.0, 9.0]] {
            let svg = bars(values.map(Some).to_vec()).to_svg();
            // Bars touch the line of zero: from above or from below.
            let scale = Scale::new(values.into_iter(), &Axis::linear(""), true, HEIGHT - BOTTOM, TOP);
            let zero = scale.place(0.0).unwrap();
            let edges = svg.lines().filter(|line| line.contains("<rect x=")).map(|line| {
                let number = |name: &str| -> f64 {
                    line.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
                };
                (number("y"), number("y") + number("height"))
            });
            assert!(scale.low <= 0.0 && scale.high >= 0.0, "{values:?}: {} to {}", scale.low, scale.high);
            let mut bars = 0;
            for (upper, lower) in edges {
                bars += 1;
                assert!((upper - zero).abs() < 0.2 || (lower - zero).abs() < 0.2, "{upper} {lower} {zero}");
            }
            assert_eq!(bars, 2);
        }
    }

    #[test]
    fn names_of_groups_stay_inside_the_picture() {
        for length in [3, 20, 60, 100] {
            let groups = vec!["n".repeat(length); 8];
            let slant = Slant::of(&groups, 800.0);
            assert_eq!(slant.degrees > 0.0, length > 12, "{length}");
            assert!(slant.depth() >= slant.down * length as f64 * LETTER);
            let plot = Plot {
                name: "x".into(),
                title: "t".into(),
                medium: "m".into(),
                y: Axis::linear("n"),
                figure: Figure::Bars(Bars { series: vec![("s".into(), vec![Some(1.0); 8])], groups }),
            };
            let height: f64 =
                plot.to_svg().split(" height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            assert!(height >= HEIGHT - BOTTOM + slant.depth(), "{height}");
        }
    }

    #[test]
    fn scales_end_on_ticks() {
        let scale = Scale::new([3.0, 97.0].into_iter(), &Axis::linear(""), true, 0.0, 1.0);
        assert_eq!((scale.low, scale.high), (0.0, 100.0));
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let log = Scale::new([3.0, 4500.0].into_iter(), &Axis::logarithmic(""), true, 0.0, 1.0);
        assert_eq!(log.ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert!((log.place(100.0).unwrap() - 0.5).abs() < 1e-12);
        let empty = Scale::new([].into_iter(), &Axis::linear(""), true, 0.0, 1.0);
        assert_eq!((empty.low, empty.high), (0.0, 1.0));
        let flat = Scale::new([0.0].into_iter(), &Axis::linear(""), true, 0.0, 1.0);
        assert!(flat.high > flat.low);
        assert_eq!(tick_label(2_500_000.0), "2.5M");
        assert_eq!(tick_label(0.25), "0.25");
        assert_eq!(tick_label(8000.0), "8,000");
    }
}
