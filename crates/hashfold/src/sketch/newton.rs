//! Three sizes of maximum likelihood, by Newton's method on their logarithms, and their covariance.

use super::matrix::{Matrix, Vector, invert_positive, pairs};

const STEPS_MAX: usize = 60;
/// The largest change of a logarithm in one step.
const STEP_MAX: f64 = 2.0;
/// A step below this ends the search.
const STEP_MIN: f64 = 1e-7;
/// The least part of a step that is tried.
const SCALE_MIN: f64 = 1e-4;
/// A size below this multiple of the least one is at the floor.
const AT_FLOOR: f64 = 2.0;
/// Number of times that a step is made shorter.
const DAMPINGS_MAX: usize = 60;

/// The logarithm of the likelihood of three sizes, and its derivatives by these.
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) gradient: Vector,
    pub(super) hessian: Matrix,
}

/// Returns the sizes with the largest likelihood, `floor` or more, and the likelihood there.
pub(super) fn maximize(at: impl Fn(Vector) -> Point, start: Vector, floor: f64) -> (Vector, Point) {
    let mut sizes = start.map(|size| size.max(floor));
    let mut best = at(sizes);
    for _ in 0..STEPS_MAX {
        let step = best.step(sizes);
        let mut scale = 1.0;
        let (next, point) = loop {
            let moved = |i: usize| (sizes[i] * (scale * step[i]).exp()).max(floor);
            let next: Vector = std::array::from_fn(moved);
            let point = at(next);
            if point.value >= best.value || scale < SCALE_MIN {
                break (next, point);
            }
            scale *= 0.5;
        };
        if point.value < best.value {
            break;
        }
        let moved = (0..3).map(|i| (next[i] / sizes[i]).ln().abs()).fold(0.0, f64::max);
        (sizes, best) = (next, point);
        if moved < STEP_MIN {
            break;
        }
    }
    (sizes, best)
}

/// Whether a size is at the floor: the likelihood is largest without any key of its kind.
pub(super) fn is_at_floor(size: f64, floor: f64) -> bool {
    size <= AT_FLOOR * floor
}

impl Point {
    /// Returns the step of Newton's method, or one along the gradient where that leads nowhere.
    fn step(&self, sizes: Vector) -> Vector {
        let slope: Vector = std::array::from_fn(|i| sizes[i] * self.gradient[i]);
        let mut curvature: Matrix = [[0.0; 3]; 3];
        for (i, j) in pairs() {
            curvature[i][j] = -sizes[i] * sizes[j] * self.hessian[i][j];
        }
        (0..3).for_each(|i| curvature[i][i] -= slope[i]);
        // A larger diagonal makes the matrix positive definite, and the step shorter.
        let largest = (0..3).map(|i| curvature[i][i].abs()).fold(1e-12, f64::max);
        let mut damping = 0.0;
        for _ in 0..DAMPINGS_MAX {
            let mut damped = curvature;
            (0..3).for_each(|i| damped[i][i] += damping);
            if let Some(inverse) = invert_positive(&damped) {
                let along = |i: usize| (0..3).map(|j| inverse[i][j] * slope[j]).sum::<f64>();
                return std::array::from_fn(|i| along(i).clamp(-STEP_MAX, STEP_MAX));
            }
            damping = (damping * 4.0).max(1e-3 * largest);
        }
        // The sizes stay as they are.
        [0.0; 3]
    }

    /// Returns the mean of each size: of one at the floor that of e^−gs, 1/g, but not more than its `reach`.
    pub(super) fn means(&self, sizes: Vector, floor: f64, reach: Vector) -> Vector {
        std::array::from_fn(|i| match is_at_floor(sizes[i], floor) {
            true => (1.0 / self.gradient[i].abs()).min(reach[i]),
            false => sizes[i],
        })
    }

    /// Returns the covariance of the sizes with the largest likelihood: the inverse of the observed Fisher
    /// information. The likelihood of a size at the floor falls from there on as e^−gs with the gradient −g, so
    /// that its standard error is 1/g. The others follow from it: where it is larger, they are less likely as large.
    ///
    /// The likelihood may tell nothing of how a sum divides into two sizes. Then no size is known worse than by its
    /// `reach`, which is what it can be at most, and a key.
    pub(super) fn covariance(&self, sizes: Vector, floor: f64, reach: Vector) -> Matrix {
        let is_at_floor = sizes.map(|size| is_at_floor(size, floor));
        let mut information = [[0.0; 3]; 3];
        for (i, j) in pairs() {
            information[i][j] = match (is_at_floor[i] || is_at_floor[j], i == j) {
                (false, _) => -self.hessian[i][j],
                (true, true) => self.gradient[i] * self.gradient[i],
                (true, false) => 0.0,
            };
        }
        let variance_max = reach.map(|reach| (reach + 1.0).powi(2));
        let is_known = |covariance: &Matrix| (0..3).all(|i| covariance[i][i] <= variance_max[i]);
        let alone = invert_positive(&information).filter(is_known).unwrap_or_else(|| {
            (0..3).for_each(|i| information[i][i] += 1.0 / variance_max[i]);
            let at_most = std::array::from_fn(|i| {
                std::array::from_fn(|j| if i == j { variance_max[i] } else { 0.0 })
            });
            invert_positive(&information).unwrap_or(at_most)
        });
        self.follow(alone, is_at_floor)
    }

    /// Adds to a covariance what sizes at the floor say of the others: if one of them is larger by a key, each other one
    /// has its largest likelihood elsewhere, by at most a key.
    fn follow(&self, alone: Matrix, is_at_floor: [bool; 3]) -> Matrix {
        let mut covariance = alone;
        for i in (0..3).filter(|i| is_at_floor[*i]) {
            let slope: Vector = std::array::from_fn(|j| match (i == j, is_at_floor[j]) {
                (true, _) => 1.0,
                (false, true) => 0.0,
                (false, false) => {
                    let others = (0..3).filter(|k| !is_at_floor[*k]);
                    let slope: f64 = others.map(|k| alone[j][k] * self.hessian[k][i]).sum();
                    slope.clamp(-1.0, 1.0)
                }
            });
            for (j, k) in pairs().filter(|pair| *pair != (i, i)) {
                covariance[j][k] += slope[j] * slope[k] * alone[i][i];
            }
        }
        covariance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts with Poisson distributions: the likelihood of each size is largest at its count, and the variance is
    /// the count.
    fn poisson(counts: Vector) -> impl Fn(Vector) -> Point {
        move |sizes| {
            let mut hessian = [[0.0; 3]; 3];
            (0..3).for_each(|i| hessian[i][i] = -counts[i] / (sizes[i] * sizes[i]));
            Point {
                value: (0..3).map(|i| counts[i] * sizes[i].ln() - sizes[i]).sum(),
                gradient: std::array::from_fn(|i| counts[i] / sizes[i] - 1.0),
                hessian,
            }
        }
    }

    #[test]
    fn the_largest_likelihood_of_counts_is_found_from_anywhere() {
        let counts = [3.0, 1e6, 40.0];
        for start in [[1.0; 3], [1e9, 1e-3, 40.0], [1e12; 3]] {
            let (sizes, point) = maximize(poisson(counts), start, 1e-6);
            let covariance = point.covariance(sizes, 1e-6, [1e12; 3]);
            for i in 0..3 {
                assert!((sizes[i] / counts[i] - 1.0).abs() < 1e-6, "{sizes:?}");
                assert!((covariance[i][i] / counts[i] - 1.0).abs() < 1e-5, "{covariance:?}");
            }
        }
        // Nothing of one kind: its size is at the floor, and its standard error is 1, the reach of e^−s.
        let (sizes, point) = maximize(poisson([0.0, 5.0, 5.0]), [1.0; 3], 1e-6);
        assert!(
            sizes[0] <= 2e-6 && (point.covariance(sizes, 1e-6, [1e12; 3])[0][0] - 1.0).abs() < 1e-3
        );
    }

    /// Only the sum of the first and the third size is known: 20, with the variance 20.
    #[test]
    fn what_is_not_known_is_known_within_its_reach() {
        let mut hessian = [[0.0; 3]; 3];
        for (i, j) in [(0, 0), (0, 2), (2, 0), (2, 2)] {
            hessian[i][j] = -1.0 / 20.0;
        }
        hessian[1][1] = -1e-5;
        let point = Point { value: 0.0, gradient: [0.0; 3], hessian };
        let covariance = point.covariance([0.2, 1e5, 19.8], 1e-8, [20.0, 1e5, 20.0]);
        let sum = covariance[0][0] + 2.0 * covariance[0][2] + covariance[2][2];
        assert!((sum / 20.0 - 1.0).abs() < 0.1, "{covariance:?}");
        assert!((covariance[1][1] / 1e5 - 1.0).abs() < 1e-3, "{covariance:?}");
        for i in [0, 2] {
            assert!((10.0..=21.0).contains(&covariance[i][i].sqrt()), "{covariance:?}");
        }
    }
}
