//! Three sizes of maximum likelihood, by Newton's method on their logarithms, and their covariance.

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
/// The variance of what is not known.
const VARIANCE_MAX: f64 = 1e300;

pub(super) type Vector = [f64; 3];
pub(super) type Matrix = [Vector; 3];

/// The logarithm of a likelihood, as a function of three sizes.
pub(super) trait Likelihood {
    fn value(&self, sizes: Vector) -> f64;

    /// Returns the first and second derivatives.
    fn derivatives(&self, sizes: Vector) -> (Vector, Matrix);
}

/// Returns the sizes with the largest likelihood, `floor` or more.
pub(super) fn maximize(likelihood: &impl Likelihood, start: Vector, floor: f64) -> Vector {
    let mut sizes = start.map(|size| size.max(floor));
    let mut best = likelihood.value(sizes);
    for _ in 0..STEPS_MAX {
        let step = step(likelihood, sizes);
        let mut scale = 1.0;
        let (next, value) = loop {
            let moved = |i: usize| (sizes[i] * (scale * step[i]).exp()).max(floor);
            let next: Vector = std::array::from_fn(moved);
            let value = likelihood.value(next);
            if value >= best || scale < SCALE_MIN {
                break (next, value);
            }
            scale *= 0.5;
        };
        if value < best {
            break;
        }
        let moved = (0..3).map(|i| (next[i] / sizes[i]).ln().abs()).fold(0.0, f64::max);
        (sizes, best) = (next, value);
        if moved < STEP_MIN {
            break;
        }
    }
    sizes
}

/// Returns the step of Newton's method, or one along the gradient where that leads nowhere.
fn step(likelihood: &impl Likelihood, sizes: Vector) -> Vector {
    let (gradient, hessian) = likelihood.derivatives(sizes);
    let slope: Vector = std::array::from_fn(|i| sizes[i] * gradient[i]);
    let mut curvature: Matrix =
        std::array::from_fn(|i| std::array::from_fn(|j| -sizes[i] * sizes[j] * hessian[i][j]));
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

/// Returns the covariance of the sizes with the largest likelihood: the inverse of the observed Fisher information.
/// The likelihood of a size at the floor falls from there on as e^−gs with the gradient −g, so that its standard error
/// is 1/g, and it tells nothing of the others.
pub(super) fn covariance(likelihood: &impl Likelihood, sizes: Vector, floor: f64) -> Matrix {
    let (gradient, hessian) = likelihood.derivatives(sizes);
    let is_at_floor = sizes.map(|size| size <= AT_FLOOR * floor);
    let information: Matrix = std::array::from_fn(|i| {
        std::array::from_fn(|j| match (is_at_floor[i] || is_at_floor[j], i == j) {
            (false, _) => -hessian[i][j],
            (true, true) => gradient[i] * gradient[i],
            (true, false) => 0.0,
        })
    });
    let unknown = |i: usize, j: usize| if i == j { VARIANCE_MAX } else { 0.0 };
    invert_positive(&information)
        .unwrap_or_else(|| std::array::from_fn(|i| std::array::from_fn(|j| unknown(i, j))))
}

/// Returns the inverse of a symmetric matrix, if it is positive definite.
fn invert_positive(m: &Matrix) -> Option<Matrix> {
    let minor = m[0][0] * m[1][1] - m[0][1] * m[1][0];
    let determinant = (0..3).map(|j| m[0][j] * cofactor(m, 0, j)).sum::<f64>();
    let is_positive = m[0][0] > 0.0 && minor > 0.0 && determinant > 0.0;
    (is_positive && determinant.is_finite())
        .then(|| std::array::from_fn(|i| std::array::from_fn(|j| cofactor(m, j, i) / determinant)))
}

fn cofactor(m: &Matrix, i: usize, j: usize) -> f64 {
    let (r, s) = ((i + 1) % 3, (i + 2) % 3);
    let (c, d) = ((j + 1) % 3, (j + 2) % 3);
    m[r][c] * m[s][d] - m[r][d] * m[s][c]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts with Poisson distributions: the likelihood of each size is largest at its count, and the variance is
    /// the count.
    struct Poisson(Vector);

    impl Likelihood for Poisson {
        fn value(&self, sizes: Vector) -> f64 {
            (0..3).map(|i| self.0[i] * sizes[i].ln() - sizes[i]).sum()
        }

        fn derivatives(&self, sizes: Vector) -> (Vector, Matrix) {
            let second = |i: usize, j: usize| match i == j {
                true => -self.0[i] / (sizes[i] * sizes[i]),
                false => 0.0,
            };
            let first = std::array::from_fn(|i| self.0[i] / sizes[i] - 1.0);
            (first, std::array::from_fn(|i| std::array::from_fn(|j| second(i, j))))
        }
    }

    #[test]
    fn the_largest_likelihood_of_counts_is_found_from_anywhere() {
        let counts = [3.0, 1e6, 40.0];
        for start in [[1.0; 3], [1e9, 1e-3, 40.0], [1e12; 3]] {
            let sizes = maximize(&Poisson(counts), start, 1e-6);
            let covariance = covariance(&Poisson(counts), sizes, 1e-6);
            for i in 0..3 {
                assert!((sizes[i] / counts[i] - 1.0).abs() < 1e-6, "{sizes:?}");
                assert!((covariance[i][i] / counts[i] - 1.0).abs() < 1e-5, "{covariance:?}");
            }
        }
        // Nothing of one kind: its size is at the floor, and its standard error is 1, the reach of e^−s.
        let none = Poisson([0.0, 5.0, 5.0]);
        let sizes = maximize(&none, [1.0; 3], 1e-6);
        assert!(sizes[0] <= 2e-6 && (covariance(&none, sizes, 1e-6)[0][0] - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_matrix_without_an_inverse_has_none() {
        assert!(invert_positive(&[[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]).is_none());
        let inverse = invert_positive(&[[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 4.0]]);
        let expected =
            [[2.0 / 3.0, -1.0 / 3.0, 0.0], [-1.0 / 3.0, 2.0 / 3.0, 0.0], [0.0, 0.0, 0.25]];
        let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-12;
        assert!(inverse.unwrap().concat().into_iter().zip(expected.concat()).all(near));
    }
}
