//! The timeline of a host-aware shingled disk: its cache, its cleaning, who is held back, and how long requests take.

use super::lettering::{self, Anchor};
use super::loads::{DrawnMap, FilmSummary, in_pairs, known};
use super::page::fill;
use crate::error::LabError;
use crate::experiment::idler::{Span, Timeline, WatchedReplay, controls, watch};
use crate::experiment::{Progress, Scale};
use crate::report::{escape, format_number};
use std::fmt::Write;
use std::sync::Arc;

const TEMPLATE: &str = include_str!("page/timeline.html");
const STYLE: &str = include_str!("page/timeline.css");
const SCRIPT: &str = include_str!("page/timeline.js");

/// Spans of a timeline, at most.
const SPANS_MAX: u32 = 2_000;

/// What to draw.
#[derive(Clone)]
pub struct IdlerMap {
    /// Controls, each a picture of its own: those of [`IdlerMap::controls`].
    pub controls: Vec<String>,
    /// Threads that make the requests.
    pub threads: usize,
    /// With a write buffer of 64 MB in full.
    pub is_buffered: bool,
    /// How much smaller than full size drive and load are.
    pub scale: Scale,
    /// Everything random follows from it.
    pub seed: u64,
    /// Spans of time, 1 to 2,000.
    pub spans: u32,
    /// What is to be said meanwhile.
    pub progress: Arc<dyn Progress>,
}

impl IdlerMap {
    /// Controls there are.
    pub fn controls() -> Vec<&'static str> {
        controls()
    }

    /// Replays requests like those of proj_1, two controls at a time, and draws what happened. The same map gives the same bytes.
    ///
    /// # Errors
    /// A control that is not known, too many spans, and what a replay says.
    pub fn draw(&self) -> Result<DrawnMap, LabError> {
        known("control", &self.controls, &controls())?;
        if !(1..=SPANS_MAX).contains(&self.spans) {
            return Err(LabError::invalid("spans", format!("{} are not 1 to {SPANS_MAX}", self.spans)));
        }
        let load = |control: &String| WatchedReplay {
            control: control.clone(),
            threads: self.threads.max(1),
            is_buffered: self.is_buffered,
            scale: self.scale,
            seed: self.seed,
            spans: self.spans,
        };
        let loads: Vec<WatchedReplay> = self.controls.iter().map(load).collect();
        let requests = loads.first().map_or(0, WatchedReplay::requests);
        self.progress.begin("replaying", Some(requests * loads.len() as u64));
        let timelines = in_pairs(&loads, &self.progress, watch);
        self.progress.end();
        let timelines = timelines?;
        let buffer = if self.is_buffered { ", with a write buffer" } else { "" };
        let description = format!(
            "{requests} requests like those of proj_1 (synthetic, calibrated), {} threads, on an emulated ST8000AS0022 at scale {}{buffer}, \
             seed {}.",
            self.threads, self.scale, self.seed
        );
        let (html, svg) = (page(&description, &timelines)?, still(Some(&description), &timelines));
        let summary = |timeline: &Timeline| FilmSummary {
            name: timeline.name.clone(),
            operations: timeline.requests,
            nanos: timeline.finish_nanos,
            counters: timeline.counters.clone(),
        };
        Ok(DrawnMap { html, svg, summaries: timelines.iter().map(summary).collect() })
    }
}

/// A line of a lane.
struct Graph {
    name: &'static str,
    color: &'static str,
    /// Lengths of dashes and gaps; none for a solid line.
    dashes: &'static str,
    value: fn(&Span) -> f64,
}

/// A part of a timeline with an axis of its own.
struct Lane {
    title: &'static str,
    unit: &'static str,
    height: u32,
    graphs: &'static [Graph],
    /// Upper end of the axis; unset is a round number above all values of all timelines.
    top: Option<f64>,
}

const LANES: [Lane; 4] = [
    Lane {
        title: "longest response",
        unit: "s",
        height: 100,
        graphs: &[Graph { name: "response", color: "#000000", dashes: "", value: |span| span.longest_seconds }],
        top: None,
    },
    Lane {
        title: "media cache in use",
        unit: "% of its size",
        height: 100,
        graphs: &[
            Graph { name: "extents", color: "#0058a3", dashes: "", value: |span| 100.0 * span.extents_share },
            Graph { name: "bytes", color: "#00786b", dashes: "5 3", value: |span| 100.0 * span.bytes_share },
        ],
        top: Some(100.0),
    },
    Lane {
        title: "cleaning",
        unit: "% of the time",
        height: 60,
        graphs: &[
            Graph { name: "blocking", color: "#b33a00", dashes: "", value: |span| 100.0 * span.blocking_share },
            Graph { name: "idle", color: "#00664b", dashes: "5 3", value: |span| 100.0 * span.idle_cleaning_share },
        ],
        top: Some(100.0),
    },
    Lane {
        title: "requests held back",
        unit: "% of the requests",
        height: 60,
        graphs: &[Graph {
            name: "held back",
            color: "#8a2f6d",
            dashes: "",
            value: |span| {
                if span.requests == 0 { 0.0 } else { 100.0 * span.held as f64 / span.requests as f64 }
            },
        }],
        top: Some(100.0),
    },
];

const WIDTH: u32 = 1100;
/// Left and right end of the axes of time.
const LEFT: u32 = 60;
const RIGHT: u32 = WIDTH - 20;
const MARGIN: u32 = 20;
/// Above a lane: its title and legend.
const LANE_HEAD: u32 = 24;
/// Below the last lane: numbers and the name of the axis of time.
const FOOT: u32 = 44;
/// Colours of a lane and of its lines; the lines of data keep 4.5 to 1 from the first.
const PAPER: &str = "#ffffff";
const FRAME: &str = "#767676";
const GRID: &str = "#dddddd";

/// Units of the axis of time, and the shortest time that each is used for, in seconds.
const TIME_UNITS: [(&str, f64, f64); 4] =
    [("days", 86_400.0, 345_600.0), ("h", 3_600.0, 14_400.0), ("min", 60.0, 600.0), ("s", 1.0, 0.0)];

/// The upper end of an axis of four steps or less that are 1, 2 or 5 times a power of ten, and such a step.
fn axis(most: f64) -> (f64, f64) {
    let mut power = 1e-6;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            let step = power * factor;
            if step * 4.0 >= most {
                return (step * (most / step).ceil().max(1.0), step);
            }
        }
        power *= 10.0;
    }
}

/// A number without zeros at its end.
fn number_on_axis(number: f64) -> String {
    let digits = format_number(number);
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.').to_owned() } else { digits }
}

/// The axis of a lane, common to all timelines.
fn axis_of(lane: &Lane, timelines: &[Timeline]) -> (f64, f64) {
    let spans = || timelines.iter().flat_map(|timeline| &timeline.spans);
    let most = || lane.graphs.iter().flat_map(|graph| spans().map(graph.value)).fold(0.0, f64::max);
    match lane.top {
        Some(top) => (top, top / 2.0),
        None => axis(most()),
    }
}

/// Upper edges of the lanes below `top`, and where the timeline ends.
fn lane_tops(top: u32) -> ([u32; LANES.len()], u32) {
    let mut end = top + lettering::NAME.line_height();
    let tops = LANES.each_ref().map(|lane| {
        let top = end + LANE_HEAD;
        end = top + lane.height;
        top
    });
    (tops, end + FOOT)
}

/// Appends a timeline below `top`; returns where it ends. All have the same axes.
fn draw_one(out: &mut String, timeline: &Timeline, timelines: &[Timeline], top: u32) -> u32 {
    let seconds = length_seconds(timelines).max(1e-9);
    let x = |at: f64| f64::from(LEFT) + f64::from(RIGHT - LEFT) * at / seconds;
    let (tops, end) = lane_tops(top);
    lettering::NAME.write(out, LEFT.into(), (top + lettering::NAME.size).into(), Anchor::Start, &timeline.name);
    let (unit, unit_seconds, _) =
        TIME_UNITS.into_iter().find(|(.., least)| seconds >= *least).unwrap_or(("s", 1.0, 0.0));
    let (_, step) = axis(seconds / unit_seconds / 2.0);
    let times = || {
        (0..).map(move |number| f64::from(number) * step).take_while(move |at| at * unit_seconds <= seconds * 1.000_1)
    };
    for (lane, top) in LANES.iter().zip(tops) {
        let (most, step) = axis_of(lane, timelines);
        let y = |value: f64| f64::from(top + lane.height) - f64::from(lane.height) * (value / most).clamp(0.0, 1.0);
        let (width, height) = (RIGHT - LEFT, lane.height);
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{PAPER}\" stroke=\"{FRAME}\"/>"
        );
        let mut grid = String::new();
        for number in 0..=(most / step).round() as u32 {
            let value = f64::from(number) * step;
            let _ = write!(grid, "M{LEFT} {:.1}h{width}", y(value));
            lettering::TICK.write(out, f64::from(LEFT) - 6.0, y(value) + 4.0, Anchor::End, &number_on_axis(value));
        }
        for at in times() {
            let _ = write!(grid, "M{:.1} {top}v{height}", x(at * unit_seconds));
        }
        let _ = writeln!(out, "<path d=\"{grid}\" fill=\"none\" stroke=\"{GRID}\"/>");
        let base = f64::from(top) - 8.0;
        let title = format!("{} ({})", lane.title, lane.unit);
        lettering::ENTRY.write(out, LEFT.into(), base, Anchor::Start, &title);
        let mut sample = f64::from(LEFT) + lettering::ENTRY.width(&title) + f64::from(MARGIN);
        for Graph { name, color, dashes, value } in lane.graphs {
            let stroke = format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" stroke-dasharray=\"{dashes}\"");
            let stroke = stroke.replace(" stroke-dasharray=\"\"", "");
            let mut points = format!("{:.1},{:.1}", x(0.0), y(0.0));
            for span in &timeline.spans {
                let _ = write!(points, " {:.1},{:.1}", x(span.seconds), y(value(span)));
            }
            let _ = writeln!(out, "<polyline points=\"{points}\" {stroke}/>");
            let _ = writeln!(out, "<path d=\"M{sample:.1} {:.1}h28\" {stroke}/>", base - 4.0);
            lettering::ENTRY.write(out, sample + 34.0, base, Anchor::Start, name);
            sample += 34.0 + lettering::ENTRY.width(name) + f64::from(MARGIN);
        }
    }
    let foot = f64::from(end - FOOT);
    for at in times() {
        lettering::TICK.write(out, x(at * unit_seconds), foot + 15.0, Anchor::Middle, &number_on_axis(at));
    }
    let middle = f64::from(LEFT + RIGHT) / 2.0;
    lettering::ENTRY.write(out, middle, foot + 32.0, Anchor::Middle, &format!("time ({unit})"));
    end
}

fn length_seconds(timelines: &[Timeline]) -> f64 {
    timelines.iter().filter_map(|timeline| timeline.spans.last()).map(|span| span.seconds).fold(0.0, f64::max)
}

/// How the controls compare in this run, in words.
fn verdict(timelines: &[Timeline]) -> String {
    let counter = |timeline: &Timeline, wanted: &str| {
        timeline.counters.iter().find(|(name, _)| name == wanted).map_or(0, |(_, value)| *value)
    };
    let mut sorted: Vec<&Timeline> = timelines.iter().collect();
    sorted.sort_by_key(|timeline| counter(timeline, "P99.9 (us)"));
    let of = |timeline: &&Timeline| {
        let seconds = number_on_axis(counter(timeline, "P99.9 (us)") as f64 / 1e6);
        let blocked = match counter(timeline, "times blocked") {
            0 => "the disk never blocked".to_owned(),
            1 => "the disk blocked once".to_owned(),
            times => format!("the disk blocked {times} times"),
        };
        format!("{}: {seconds} s ({blocked})", timeline.name)
    };
    let all: Vec<String> = sorted.iter().map(of).collect();
    format!("P99.9 of the response times in this run, shortest first: {}.", all.join("; "))
}

/// Title of the picture.
const TITLE: &str = "A host-aware shingled disk over time";

/// All timelines below each other, with what is said of them, or without it for a page that says it.
fn still(description: Option<&str>, timelines: &[Timeline]) -> String {
    let (mut body, mut top) = (String::new(), MARGIN);
    if let Some(description) = description {
        top = lettering::TITLE.paragraph(&mut body, MARGIN, top, WIDTH - 2 * MARGIN, TITLE);
        for words in [description, &verdict(timelines)] {
            top = lettering::WORDS.paragraph(&mut body, MARGIN, top, WIDTH - 2 * MARGIN, words);
        }
        top += MARGIN;
    }
    for timeline in timelines {
        top = draw_one(&mut body, timeline, timelines, top);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" \
         font-family=\"sans-serif\" role=\"img\">\n<rect width=\"100%\" height=\"100%\" fill=\"{PAPER}\"/>\n{body}</svg>\n"
    )
}

fn page(description: &str, timelines: &[Timeline]) -> Result<String, LabError> {
    let numbers = timelines.iter().map(|timeline| {
        let spans = timeline.spans.iter().map(|span| {
            let graphs = LANES.iter().flat_map(|lane| lane.graphs);
            let values: Vec<f64> = graphs.map(|graph| ((graph.value)(span) * 1e4).round() / 1e4).collect();
            serde_json::json!([span.seconds, span.requests, values])
        });
        serde_json::json!({ "name": timeline.name, "spans": spans.collect::<Vec<_>>() })
    });
    let lines: Vec<String> = LANES
        .iter()
        .flat_map(|lane| lane.graphs.iter().map(|graph| format!("{}, {} ({})", lane.title, graph.name, lane.unit)))
        .collect();
    let data = serde_json::json!({
        "schema": 1,
        "lines": lines,
        "left": LEFT,
        "right": RIGHT,
        "width": WIDTH,
        "seconds": length_seconds(timelines),
        "timelines": numbers.collect::<Vec<_>>(),
    });
    fill(TEMPLATE, &data, |name| {
        Some(match name {
            "description" => escape(description),
            "title" => TITLE.to_owned(),
            "verdict" => escape(&verdict(timelines)),
            "style" => STYLE.to_owned(),
            "picture" => still(None, timelines),
            "script" => SCRIPT.to_owned(),
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::lettering::tests::{check_texts, contrast, parts, pixel, render, texts};
    use super::super::well_formed;
    use super::*;
    use crate::experiment::Silent;

    /// A timeline with the same in all of its spans.
    fn timeline(name: &str, span: Span, tail_micros: u64, blocked: u64) -> Timeline {
        let spans = (1..=50).map(|number| Span { seconds: f64::from(number) * 700.0, ..span });
        let counters = vec![("P99.9 (us)".to_owned(), tail_micros), ("times blocked".to_owned(), blocked)];
        Timeline { name: name.to_owned(), spans: spans.collect(), finish_nanos: 1, requests: 50, counters }
    }

    fn two() -> [Timeline; 2] {
        let span = Span {
            longest_seconds: 5.5,
            requests: 10,
            bytes_share: 0.2,
            extents_share: 0.75,
            idle_cleaning_share: 0.3,
            blocking_share: 0.6,
            held: 4,
            ..Span::default()
        };
        let quick = Span { longest_seconds: 1.0, blocking_share: 0.0, ..span };
        [timeline("no control", span, 5_500_000, 2), timeline("a <control>", quick, 225_000, 0)]
    }

    #[test]
    fn lines_are_where_the_axes_say() {
        let timelines = two();
        let picture = render(&still(None, &timelines));
        let mut top = MARGIN;
        let middle = (LEFT + RIGHT) / 2 + 7;
        for timeline in &timelines {
            let (tops, end) = lane_tops(top);
            for (lane, top) in LANES.iter().zip(tops) {
                let (most, _) = axis_of(lane, &timelines);
                for graph in lane.graphs {
                    let share = (graph.value)(&timeline.spans[9]) / most;
                    let y = f64::from(top + lane.height) - share * f64::from(lane.height);
                    // A dashed line has gaps: some pixel near has nearly its colour.
                    let near =
                        (0..12).flat_map(|right| [-1.0, 0.0].map(|below| (middle + right, (y + below).floor() as u32)));
                    let wanted = parts(graph.color);
                    let difference = |found: [u8; 3]| {
                        found.iter().zip(wanted).map(|(one, other)| u32::from(one.abs_diff(other))).sum::<u32>()
                    };
                    let least = near.map(|(x, y)| difference(pixel(&picture, x, y))).min().unwrap();
                    assert!(least < 160, "{}, {}: nothing like {} at {y}", timeline.name, graph.name, graph.color);
                }
                assert_eq!(pixel(&picture, LEFT - 2, top + lane.height / 3), parts(PAPER));
            }
            top = end;
        }
        assert_eq!(picture.height(), top);
    }

    #[test]
    fn axes_have_numbers_and_units_and_lines_have_names() {
        let svg = still(Some("what was run"), &two());
        well_formed::check(&svg).unwrap();
        check_texts(&svg);
        let words: Vec<String> = texts(&svg).into_iter().map(|(_, words)| words).collect();
        let count = |wanted: &str| words.iter().filter(|words| *words == wanted).count();
        for lane in &LANES {
            assert_eq!(count(&format!("{} ({})", lane.title, lane.unit)), 2);
            assert!(lane.graphs.iter().all(|graph| count(graph.name) == 2));
        }
        // Both have the axis of the slower one, and an hour is an hour.
        assert_eq!([count("time (h)"), count("6"), count("a <control>")], [2, 4, 1], "{words:?}");
        assert!(words.iter().any(|words| words.contains("what was run")));
    }

    #[test]
    fn lines_can_be_told_apart() {
        for lane in &LANES {
            assert!(lane.graphs.iter().all(|graph| contrast(graph.color, PAPER) >= 4.5), "{}", lane.title);
            let dashes: std::collections::BTreeSet<&str> = lane.graphs.iter().map(|graph| graph.dashes).collect();
            assert_eq!(dashes.len(), lane.graphs.len(), "{}: without colours, too", lane.title);
        }
        assert!(contrast(FRAME, PAPER) >= 4.5);
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (most, expected) in
            [(0.0, (1e-6, 1e-6)), (5.5, (6.0, 2.0)), (8.11, (10.0, 5.0)), (0.47, (0.6, 0.2)), (4.0, (4.0, 1.0))]
        {
            let (top, step) = axis(most);
            assert!((top - expected.0).abs() < 1e-9 && (step - expected.1).abs() < 1e-9, "{most}: {top}, {step}");
        }
    }

    #[test]
    fn the_verdict_follows_from_the_run() {
        let [slow, quick] = two();
        let said = verdict(&[slow.clone(), quick.clone()]);
        let expected = "a <control>: 0.225 s (the disk never blocked); no control: 5.5 s (the disk blocked 2 times).";
        assert!(said.ends_with(expected), "{said}");
        let counters = vec![("P99.9 (us)".to_owned(), 9_000_000), ("times blocked".to_owned(), 1)];
        let said = verdict(&[slow, Timeline { counters, ..quick }]);
        assert!(
            said.ends_with("no control: 5.5 s (the disk blocked 2 times); a <control>: 9 s (the disk blocked once)."),
            "{said}"
        );
    }

    fn map(controls: &[&str], is_buffered: bool) -> IdlerMap {
        IdlerMap {
            controls: controls.iter().map(|&control| control.to_owned()).collect(),
            threads: 16,
            is_buffered,
            scale: Scale::one_in(1024),
            seed: 1,
            spans: 50,
            progress: Arc::new(Silent),
        }
    }

    #[test]
    fn timelines_are_drawn_and_repeat_to_the_byte() {
        let map = map(&["none", "idler"], false);
        let (first, second) = (map.draw().unwrap(), map.draw().unwrap());
        assert!(first.html == second.html && first.svg == second.svg);
        well_formed::check(&first.svg).unwrap();
        let counter = |number: usize, wanted: &str| {
            first.summaries[number].counters.iter().find(|(name, _)| name == wanted).unwrap().1
        };
        assert!(counter(0, "times blocked") > 0 && counter(1, "held back") > 0, "{:?}", first.summaries);
        let data = first.html.split_once("id=\"timelines-data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let spans = data["timelines"][0]["spans"].as_array().unwrap();
        assert!(spans.len() >= 40);
        let most = spans.iter().map(|span| span[2][1].as_f64().unwrap()).fold(0.0, f64::max);
        assert!((90.0..110.0).contains(&most), "the map of extents was full at times: {most} %");
        check_texts(&first.svg);
        assert!(!first.html.contains("{{"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let error = map(&["slow"], true).draw().unwrap_err().to_string();
        assert!(error.contains("control: 'slow' is none of none, at-ic, idler, relocate"), "{error}");
        let error = IdlerMap { spans: 0, ..map(&["none"], false) }.draw().unwrap_err().to_string();
        assert!(error.contains("0 are not 1 to 2000"), "{error}");
    }
}
