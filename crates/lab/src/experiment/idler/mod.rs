//! Idler (Zhang, chapter 4): a host-aware shingled disk, and control of when it cleans.

mod alone;
mod at_ic;
mod buffered;
mod calibration;
mod drive;
mod overheads;
mod robust;
mod table4_2;
mod timeline;
mod told;
mod traces;
mod ycsb;

pub(crate) use timeline::{Span, Timeline, WatchedReplay, controls, watch};

use super::{Experiment, Scale};

/// So much smaller are zones, cache, extents and requests; times stay as they are.
const DEFAULT_SCALE: Scale = Scale::one_in(16);

pub(super) const EXPERIMENTS: &[Experiment] = &[
    calibration::CALIBRATION,
    alone::TABLE_4_1,
    alone::FIG_4_2A,
    alone::FIG_4_2B,
    alone::FIG_4_3,
    at_ic::FIG_4_4,
    at_ic::FIG_4_5,
    at_ic::FIG_4_6,
    at_ic::FIG_4_7,
    table4_2::TABLE_4_2,
    traces::FIG_4_8,
    traces::FIG_4_9,
    traces::FIG_4_10,
    traces::FIG_4_11,
    traces::FIG_4_12,
    buffered::FIG_4_13,
    buffered::FIG_4_14,
    traces::TRACES,
    overheads::OVERHEADS,
    robust::ROBUST,
    ycsb::YCSB,
];
