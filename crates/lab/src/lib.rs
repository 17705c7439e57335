//! Workloads, traces, experiments and reports.
