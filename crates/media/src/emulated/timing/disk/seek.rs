//! How long the arm takes to move.

/// Seek time as a function of the distance in cylinders, settling included.
///
/// Decisions follow from it, so it uses only arithmetic that IEEE 754 defines to the bit.
#[derive(Clone, Debug, PartialEq)]
pub enum SeekCurve {
    /// The usual two-piece fit: the arm first accelerates, then coasts (Ruemmler and Wilkes, "An
    /// introduction to disk drive modeling", IEEE Computer 27(3), 1994).
    TwoPiece {
        /// Constant of the short seeks.
        short_base_nanos: f64,
        /// Factor of the square root of the distance.
        short_per_root_nanos: f64,
        /// Distance at which long seeks begin.
        long_from_cylinders: u64,
        /// Constant of the long seeks.
        long_base_nanos: f64,
        /// Factor of the distance.
        long_per_cylinder_nanos: f64,
    },
    /// Measured points (distance, nanoseconds), ascending by distance; straight lines between them,
    /// and beyond the last one on with the last line's slope.
    Table(Vec<(u64, u64)>),
}

impl SeekCurve {
    /// A two-piece curve from what data sheets give: the shortest, the average and the longest seek of
    /// an arm with `cylinders`. The average is over all pairs of cylinders. The pieces meet at
    /// 30% of the stroke, where they do on the drives of the source named at [`SeekCurve::TwoPiece`].
    pub fn from_data_sheet(cylinders: u64, shortest_nanos: u64, average_nanos: u64, longest_nanos: u64) -> Self {
        let stroke = cylinders.max(4) as f64;
        let meet: f64 = 0.3;
        let root = meet.sqrt();
        // With x = distance / stroke, pairs of cylinders have density 2 (1 - x). The curve is
        // shortest + b sqrt(x) up to `meet`, then a line that ends at `longest`; its mean is linear in b.
        let mean_root = 4.0 / 3.0 * meet * root - 4.0 / 5.0 * meet * meet * root + root * (1.0 - meet) * (1.0 - meet);
        let mean_beyond = (1.0 - meet) * (1.0 - meet) * (1.0 - meet) / 3.0;
        let (shortest, average, longest) = (shortest_nanos as f64, average_nanos as f64, longest_nanos as f64);
        let beyond = mean_beyond / (1.0 - meet);
        let b = (average - shortest - (longest - shortest) * beyond) / (mean_root - root * beyond);
        let slope = (longest - shortest - b * root) / (1.0 - meet);
        let per_root = b / stroke.sqrt();
        SeekCurve::TwoPiece {
            // So that a distance of 1, not 0, takes the shortest time.
            short_base_nanos: shortest - per_root,
            short_per_root_nanos: per_root,
            long_from_cylinders: (meet * stroke) as u64,
            long_base_nanos: shortest + b * root - slope * meet,
            long_per_cylinder_nanos: slope / stroke,
        }
    }

    /// Time to move `cylinders`; 0 for no distance.
    pub fn nanos(&self, cylinders: u64) -> u64 {
        if cylinders == 0 {
            return 0;
        }
        match self {
            SeekCurve::TwoPiece {
                short_base_nanos,
                short_per_root_nanos,
                long_from_cylinders,
                long_base_nanos,
                long_per_cylinder_nanos,
            } => {
                let distance = cylinders as f64;
                if cylinders < *long_from_cylinders {
                    (short_base_nanos + short_per_root_nanos * distance.sqrt()) as u64
                } else {
                    (long_base_nanos + long_per_cylinder_nanos * distance) as u64
                }
            }
            SeekCurve::Table(points) => {
                let next = points.partition_point(|&(distance, _)| distance < cylinders);
                let (low, high) = match (next.checked_sub(1), points.get(next)) {
                    (_, None) if points.len() >= 2 => (points[points.len() - 2], points[points.len() - 1]),
                    (Some(before), Some(&point)) => (points[before], point),
                    (_, _) => return points.first().map_or(0, |&(_, nanos)| nanos),
                };
                let run = (high.0 - low.0).max(1) as i128;
                let rise = i128::from(high.1) - i128::from(low.1);
                let nanos = i128::from(low.1) + rise * i128::from(cylinders - low.0) / run;
                u64::try_from(nanos).unwrap_or(0)
            }
        }
    }

    /// The same curve with all times divided by `divisor`.
    pub fn scaled(&self, divisor: u64) -> Self {
        let factor = divisor.max(1) as f64;
        match self {
            SeekCurve::TwoPiece {
                short_base_nanos,
                short_per_root_nanos,
                long_from_cylinders,
                long_base_nanos,
                long_per_cylinder_nanos,
            } => SeekCurve::TwoPiece {
                short_base_nanos: short_base_nanos / factor,
                short_per_root_nanos: short_per_root_nanos / factor,
                long_from_cylinders: *long_from_cylinders,
                long_base_nanos: long_base_nanos / factor,
                long_per_cylinder_nanos: long_per_cylinder_nanos / factor,
            },
            SeekCurve::Table(points) => {
                SeekCurve::Table(points.iter().map(|&(distance, nanos)| (distance, nanos / divisor.max(1))).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn data_sheet_numbers_come_back() {
        let curve = SeekCurve::from_data_sheet(200_000, 1_000_000, 8_500_000, 18_000_000);
        assert_eq!(curve.nanos(0), 0);
        assert!(curve.nanos(1).abs_diff(1_000_000) <= 1, "{}", curve.nanos(1));
        assert!(curve.nanos(200_000).abs_diff(18_000_000) < 10_000, "{}", curve.nanos(200_000));
        let mut random = Random::seeded(5);
        let total: u64 = (0..100_000).map(|_| curve.nanos(random.below(200_000).abs_diff(random.below(200_000)))).sum();
        assert!((total / 100_000).abs_diff(8_500_000) < 50_000, "{}", total / 100_000);
        let steps: Vec<u64> = (1..200_000).map(|distance| curve.nanos(distance)).collect();
        assert!(steps.is_sorted());
    }

    #[test]
    fn table_is_linear_between_points_and_beyond() {
        let curve = SeekCurve::Table(vec![(1, 100), (11, 200), (21, 400)]);
        let times: Vec<u64> = [0, 1, 6, 11, 16, 21, 31].iter().map(|&distance| curve.nanos(distance)).collect();
        assert_eq!(times, [0, 100, 150, 200, 300, 400, 600]);
        assert_eq!(curve.scaled(2).nanos(6), 75);
    }
}
