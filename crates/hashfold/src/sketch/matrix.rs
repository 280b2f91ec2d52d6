//! Symmetric matrices of three unknowns.

/// The rows of a matrix.
pub(super) type Matrix = [[f64; 3]; 3];

/// Returns the indexes of all elements.
pub(super) fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..9).map(|i| (i / 3, i % 3))
}

/// Whether a symmetric matrix is positive definite.
pub(super) fn is_positive(m: &Matrix) -> bool {
    let minor = m[0][0] * m[1][1] - m[0][1] * m[1][0];
    m[0][0] > 0.0 && minor > 0.0 && determinant(m) > 0.0
}

fn determinant(m: &Matrix) -> f64 {
    m[0][0] * cofactor(m, 0, 0) + m[0][1] * cofactor(m, 0, 1) + m[0][2] * cofactor(m, 0, 2)
}

fn cofactor(m: &Matrix, i: usize, j: usize) -> f64 {
    let (r, s) = ((i + 1) % 3, (i + 2) % 3);
    let (c, d) = ((j + 1) % 3, (j + 2) % 3);
    m[r][c] * m[s][d] - m[r][d] * m[s][c]
}

/// Returns the inverse of a matrix, if there is one.
pub(super) fn invert(m: &Matrix) -> Option<Matrix> {
    let determinant = determinant(m);
    if !(determinant.is_finite() && determinant != 0.0) {
        return None;
    }
    Some(std::array::from_fn(|i| std::array::from_fn(|j| cofactor(m, j, i) / determinant)))
}
