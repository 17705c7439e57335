//! The timeline of a host-aware shingled disk: its cache, its cleaning, who is held back, and how long requests take.

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
        let (html, svg) = (page(&description, &timelines)?, still(&timelines));
        let summary = |timeline: &Timeline| FilmSummary {
            name: timeline.name.clone(),
            operations: timeline.requests,
            nanos: timeline.finish_nanos,
            counters: timeline.counters.clone(),
        };
        Ok(DrawnMap { html, svg, summaries: timelines.iter().map(summary).collect() })
    }
}

/// A row of a picture: what it shows, up to where, and its lines.
struct Lane {
    title: &'static str,
    height: f64,
    lines: &'static [(&'static str, &'static str, fn(&Span) -> f64)],
    /// The number at the top, from all spans.
    top: fn(&[Span]) -> f64,
    unit: &'static str,
}

const LANES: [Lane; 4] = [
    Lane {
        title: "longest response",
        height: 90.0,
        lines: &[("response", "#000000", |span| span.longest_seconds)],
        top: |spans| spans.iter().map(|span| span.longest_seconds).fold(1.0, f64::max),
        unit: "s",
    },
    Lane {
        title: "media cache in use",
        height: 90.0,
        lines: &[("extents", "#0072B2", |span| span.extents_share), ("bytes", "#56B4E9", |span| span.bytes_share)],
        top: |_| 1.0,
        unit: "of it",
    },
    Lane {
        title: "cleaning",
        height: 60.0,
        lines: &[
            ("idle", "#009E73", |span| span.idle_cleaning_share),
            ("blocking", "#D55E00", |span| span.blocking_share),
        ],
        top: |_| 1.0,
        unit: "of the time",
    },
    Lane {
        title: "requests held back",
        height: 50.0,
        lines: &[("held back", "#CC79A7", |span| {
            if span.requests == 0 { 0.0 } else { span.held as f64 / span.requests as f64 }
        })],
        top: |spans| spans.iter().map(|span| span.held as f64 / span.requests.max(1) as f64).fold(0.01, f64::max),
        unit: "of those made",
    },
];

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 70.0;
const GAP: f64 = 26.0;

fn height() -> f64 {
    LANES.iter().map(|lane| lane.height + GAP).sum::<f64>() + GAP
}

/// One timeline as a group of SVG; all have the same length of time.
fn draw_one(out: &mut String, timeline: &Timeline, seconds: f64, top: f64) {
    let x = |at: f64| LEFT + (WIDTH - LEFT - 10.0) * at / seconds.max(1e-9);
    let _ = write!(out, "<text x=\"{LEFT}\" y=\"{:.1}\" class=\"name\">{}</text>", top + 14.0, escape(&timeline.name));
    let mut y = top + GAP;
    for lane in &LANES {
        let most = (lane.top)(&timeline.spans);
        let bottom = y + lane.height;
        let _ = write!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"lane\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"top\">{} {}</text><text x=\"{LEFT}\" y=\"{:.1}\" class=\"title\">{}</text>",
            WIDTH - LEFT - 10.0,
            lane.height,
            LEFT - 6.0,
            y + 9.0,
            format_number(most),
            lane.unit,
            y - 4.0,
            lane.title,
        );
        for (_, color, value) in lane.lines {
            let mut points = format!("{:.1},{bottom:.1}", x(0.0));
            for span in &timeline.spans {
                let share = ((value)(span) / most.max(1e-9)).clamp(0.0, 1.0);
                let _ = write!(points, " {:.1},{:.1}", x(span.seconds), bottom - share * lane.height);
            }
            let _ = write!(out, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1\"/>");
        }
        y += lane.height + GAP;
    }
}

fn legend() -> String {
    let lines = LANES.iter().flat_map(|lane| lane.lines.iter());
    lines.fold(String::new(), |mut out, (name, color, _)| {
        let _ = write!(out, "<span><i style=\"background:{color}\"></i>{name}</span> ");
        out
    })
}

fn length_seconds(timelines: &[Timeline]) -> f64 {
    timelines.iter().filter_map(|timeline| timeline.spans.last()).map(|span| span.seconds).fold(0.0, f64::max)
}

/// All timelines below each other.
fn still(timelines: &[Timeline]) -> String {
    let (seconds, own) = (length_seconds(timelines), height());
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" width=\"{WIDTH}\" \
         font-family=\"sans-serif\" font-size=\"11\"><style>{STYLE}</style>",
        own * timelines.len() as f64
    );
    for (number, timeline) in timelines.iter().enumerate() {
        draw_one(&mut out, timeline, seconds, number as f64 * own);
    }
    out.push_str("</svg>");
    out
}

fn page(description: &str, timelines: &[Timeline]) -> Result<String, LabError> {
    let numbers = timelines.iter().map(|timeline| {
        let spans = timeline.spans.iter().map(|span| {
            let lines = LANES.iter().flat_map(|lane| lane.lines.iter().map(|(.., value)| value));
            let values: Vec<f64> = lines.map(|value| (value(span) * 1e4).round() / 1e4).collect();
            serde_json::json!([span.seconds, span.requests, values])
        });
        serde_json::json!({ "name": timeline.name, "spans": spans.collect::<Vec<_>>() })
    });
    let lines: Vec<String> = LANES
        .iter()
        .flat_map(|lane| lane.lines.iter().map(|(name, ..)| format!("{}, {name} ({})", lane.title, lane.unit)))
        .collect();
    let data = serde_json::json!({
        "schema": 1,
        "lines": lines,
        "left": LEFT,
        "right": WIDTH - 10.0,
        "width": WIDTH,
        "seconds": length_seconds(timelines),
        "timelines": numbers.collect::<Vec<_>>(),
    });
    fill(TEMPLATE, &data, |name| {
        Some(match name {
            "description" => escape(description),
            "legend" => legend(),
            "style" => STYLE.to_owned(),
            "picture" => still(timelines),
            "script" => SCRIPT.to_owned(),
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::well_formed;
    use super::*;
    use crate::experiment::Silent;

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
        assert!((0.9..1.1).contains(&most), "the map of extents was full at times: {most}");
        assert!(!first.html.contains("{{"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let error = map(&["slow"], true).draw().unwrap_err().to_string();
        assert!(error.contains("control: 'slow' is none of none, at-ic, idler, paced, relocate"), "{error}");
        let error = IdlerMap { spans: 0, ..map(&["none"], false) }.draw().unwrap_err().to_string();
        assert!(error.contains("0 are not 1 to 2000"), "{error}");
    }
}
