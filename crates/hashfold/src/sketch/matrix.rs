//! Vectors and symmetric matrices of three unknowns.

pub(super) type Vector = [f64; 3];
/// The rows of a matrix.
pub(super) type Matrix = [Vector; 3];

/// Returns the indexes of all elements.
pub(super) fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..9).map(|i| (i / 3, i % 3))
}

/// Returns the variance of the sum of v[i]·s[i] for values s with the covariance `m`.
pub(super) fn variance(m: &Matrix, v: Vector) -> f64 {
    pairs().map(|(i, j)| v[i] * v[j] * m[i][j]).sum()
}

/// Returns the inverse of a symmetric matrix, if it is positive definite.
pub(super) fn invert_positive(m: &Matrix) -> Option<Matrix> {
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
