// SPDX-License-Identifier: MIT
//! Figures over time: means by time, the least of each span, and whether these rise.

/// A figure at a time.
pub type Point = (f64, f64);

/// The mean by time: every value counts for the time up to its neighbours, so that samples taken late
/// do not weigh less. `None` for no points; the value itself for one.
pub fn mean(points: &[Point]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    if last.0 <= first.0 {
        return Some(first.1);
    }
    let area: f64 = points
        .windows(2)
        .map(|w| (w[1].0 - w[0].0) * (w[0].1 + w[1].1) / 2.0)
        .sum();
    Some(area / (last.0 - first.0))
}

/// The largest value.
pub fn peak(points: &[Point]) -> Option<f64> {
    points.iter().map(|p| p.1).reduce(f64::max)
}

/// The points from `span.0` to before `span.1`.
pub fn within(points: &[Point], span: (f64, f64)) -> &[Point] {
    let from = points.partition_point(|p| p.0 < span.0);
    let to = points.partition_point(|p| p.0 < span.1).max(from);
    &points[from..to]
}

/// The least point of each span; spans without points give none.
pub fn minima(points: &[Point], spans: &[(f64, f64)]) -> Vec<Point> {
    let least = |span: &(f64, f64)| {
        let inside = within(points, *span).iter().copied();
        inside.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    spans.iter().filter_map(least).collect()
}

/// The last point of each span; spans without points give none.
pub fn lasts(points: &[Point], spans: &[(f64, f64)]) -> Vec<Point> {
    let last = |span: &(f64, f64)| within(points, *span).last().copied();
    spans.iter().filter_map(last).collect()
}

/// The slope by Theil and Sen: the median of the slopes between all pairs, which a single outlier does
/// not move. `None` for fewer than two times.
pub fn slope(points: &[Point]) -> Option<f64> {
    let mut slopes = Vec::new();
    for (at, one) in points.iter().enumerate() {
        for other in &points[at + 1..] {
            if other.0 != one.0 {
                slopes.push((other.1 - one.1) / (other.0 - one.0));
            }
        }
    }
    crate::stats::median(&slopes)
}

/// A value that holds from its time until the next: the one that holds at `time`.
pub fn held(steps: &[Point], time: f64) -> Option<f64> {
    let after = steps.partition_point(|p| p.0 <= time);
    after.checked_sub(1).map(|at| steps[at].1)
}

/// Fewer points for a picture: the mean of each of `count` equal spans.
pub fn thinned(points: &[Point], count: usize) -> Vec<Point> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    if points.len() <= count {
        return points.to_vec();
    }
    let step = (last.0 - first.0) / count as f64;
    let mut thin: Vec<(usize, Vec<Point>)> = Vec::new();
    for point in points {
        let at = (((point.0 - first.0) / step) as usize).min(count - 1);
        match thin.last_mut() {
            Some((span, inside)) if *span == at => inside.push(*point),
            _ => thin.push((at, vec![*point])),
        }
    }
    let middle = |inside: &Vec<Point>| {
        let sum = inside
            .iter()
            .fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
        (sum.0 / inside.len() as f64, sum.1 / inside.len() as f64)
    };
    thin.iter().map(|(_, inside)| middle(inside)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_weighs_values_by_time_not_by_number() {
        // One second at 10, then nine at 20, sampled ten times as often in the first.
        let mut points: Vec<Point> = (0..=10).map(|i| (f64::from(i) / 10.0, 10.0)).collect();
        points.extend([(1.0, 20.0), (10.0, 20.0)]);
        assert!((mean(&points).unwrap() - 19.0).abs() < 1e-9);
        assert_eq!(mean(&[(3.0, 7.0)]), Some(7.0));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn a_ramp_has_its_middle_as_mean_and_its_end_as_peak() {
        let points: Vec<Point> = (0..=100)
            .map(|i| (f64::from(i), 2.0 * f64::from(i)))
            .collect();
        assert!((mean(&points).unwrap() - 100.0).abs() < 1e-9);
        assert_eq!(peak(&points), Some(200.0));
        assert_eq!(peak(&[]), None);
    }

    #[test]
    fn spans_begin_with_their_first_time_and_end_before_their_last() {
        let points = [(0.0, 5.0), (1.0, 3.0), (2.0, 4.0), (3.0, 1.0), (4.0, 9.0)];
        let spans = [(0.0, 3.0), (3.0, 4.0), (5.0, 6.0), (3.0, 1.0)];
        assert_eq!(minima(&points, &spans), [(1.0, 3.0), (3.0, 1.0)]);
        assert_eq!(lasts(&points, &spans), [(2.0, 4.0), (3.0, 1.0)]);
    }

    #[test]
    fn the_slope_is_found_beside_an_outlier() {
        let line = |outlier: f64| -> Vec<Point> {
            (0..9)
                .map(|i| {
                    let x = f64::from(i);
                    (x, 100.0 + 3.0 * x + if i == 4 { outlier } else { 0.0 })
                })
                .collect()
        };
        assert!((slope(&line(0.0)).unwrap() - 3.0).abs() < 1e-9);
        assert!((slope(&line(5000.0)).unwrap() - 3.0).abs() < 0.5);
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), Some(0.0));
        assert_eq!(slope(&[(1.0, 1.0)]), None);
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn a_saw_that_comes_back_has_no_drift_and_one_that_does_not_has() {
        // Ten teeth of a minute, each from its foot up by 50; the feet rise by `rise` a minute.
        let saw = |rise: f64| -> Option<f64> {
            let points: Vec<Point> = (0..6000)
                .map(|i| {
                    let t = f64::from(i) / 600.0;
                    (t, 20.0 + rise * t.floor() + 50.0 * (0.5 - t.fract()).abs())
                })
                .collect();
            let spans: Vec<(f64, f64)> =
                (0..10).map(|i| (f64::from(i), f64::from(i + 1))).collect();
            slope(&minima(&points, &spans))
        };
        assert!(saw(0.0).unwrap().abs() < 1e-9);
        assert!((saw(0.7).unwrap() - 0.7).abs() < 1e-9);
    }

    #[test]
    fn a_step_holds_until_the_next() {
        let steps = [(1.0, 10.0), (2.0, 20.0)];
        assert_eq!(held(&steps, 0.5), None);
        assert_eq!(held(&steps, 1.0), Some(10.0));
        assert_eq!(held(&steps, 1.9), Some(10.0));
        assert_eq!(held(&steps, 99.0), Some(20.0));
    }

    #[test]
    fn thinning_keeps_the_mean_and_the_order() {
        let points: Vec<Point> = (0..1000)
            .map(|i| (f64::from(i), f64::from(i % 10)))
            .collect();
        let thin = thinned(&points, 100);
        assert_eq!(thin.len(), 100);
        assert!(thin.windows(2).all(|w| w[0].0 < w[1].0));
        assert!((mean(&thin).unwrap() - 4.5).abs() < 0.1);
        assert_eq!(thinned(&points[..5], 100), points[..5]);
        assert!(thinned(&[], 3).is_empty());
    }
}
