// SPDX-License-Identifier: MIT
//! Statistics over few, skewed values: medians and quartiles, never means of raw times.

use serde::{Deserialize, Serialize};

/// Where the values of one quantity lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// A quarter of the values lie below.
    pub q1: f64,
    /// A quarter of the values lie above.
    pub q3: f64,
    /// How many values there were.
    pub count: usize,
}

impl Summary {
    /// Summarizes the values; `None` for no values or one that is not a number.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.is_empty() || values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            median: quantile(&sorted, 0.5),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            q1: quantile(&sorted, 0.25),
            q3: quantile(&sorted, 0.75),
            count: sorted.len(),
        })
    }
}

/// The median; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values).map(|s| s.median)
}

/// The quantile `q` (0 to 1) of sorted values, interpolated between neighbours.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// `value / base`; `None` where that says nothing (a base of zero).
pub fn ratio(value: f64, base: f64) -> Option<f64> {
    (base > 0.0 && value.is_finite() && base.is_finite()).then(|| value / base)
}

/// The geometric mean of positive values; `None` if there are none, or one is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| v.is_nan() || *v <= 0.0) {
        return None;
    }
    let sum: f64 = values.iter().map(|v| v.ln()).sum();
    Some((sum / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_unsorted_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn summary_has_the_extremes_and_quartiles() {
        let summary = Summary::of(&[5.0, 1.0, 2.0, 4.0, 3.0]).unwrap();
        assert_eq!((summary.min, summary.max), (1.0, 5.0));
        assert_eq!((summary.q1, summary.q3), (2.0, 4.0));
        assert_eq!(summary.count, 5);
    }

    #[test]
    fn ratio_refuses_a_zero_base() {
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
        assert_eq!(ratio(3.0, 0.0), None);
        assert_eq!(ratio(f64::INFINITY, 1.0), None);
    }

    #[test]
    fn geometric_mean_of_reciprocals_is_one() {
        let mean = geometric_mean(&[2.0, 0.5, 4.0, 0.25]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[8.0, 2.0]).unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }
}
