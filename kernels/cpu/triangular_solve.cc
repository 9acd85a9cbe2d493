// Triangular systems: one trsm (trsv for one right-hand side) per matrix, in place in the output
// and without a transposition.
#include "kernels/cpu/substitution.h"

#include "kernels/handlers.h"

namespace linalg {
namespace {

template <class T, class E>
void SolveSmallTriangular(const Triangle& triangle, const Systems<T>& systems, E* a, E* x) {
  const int n = static_cast<int>(systems.n);
  const int rows = static_cast<int>(systems.rows), cols = static_cast<int>(systems.cols);
  // x op(a) = b is op(a)ᵀ xᵀ = bᵀ.
  if (!triangle.left_side) small::Transpose(rows, cols, x);
  if (triangle.conjugate) small::Conjugate(n * n, a);
  const bool transpose = triangle.transpose == triangle.left_side;
  if (transpose) small::TransposeSquare(n, a);
  const int count = triangle.left_side ? cols : rows;
  if (triangle.lower != transpose) {
    small::SolveLower(n, a, triangle.unit_diagonal, count, x);
  } else {
    small::SolveUpper(n, a, triangle.unit_diagonal, count, x);
  }
  if (!triangle.left_side) small::Transpose(cols, rows, x);
}

ffi::Error TriangularSolve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b,
                           ffi::Result<ffi::AnyBuffer> x, bool left_side, bool lower,
                           bool transpose_a, bool conjugate_a, bool unit_diagonal) {
  return Guard("linalg_triangular_solve", [&] {
    const Triangle triangle{.lower = lower,
                            .transpose = transpose_a,
                            .conjugate = conjugate_a,
                            .unit_diagonal = unit_diagonal,
                            .left_side = left_side};
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      const auto systems = ReadSystems<T>(a, b, x, left_side);
      if (UseSmallTriangular(systems)) {
        return ForEachSmallSystem(pool, systems, systems.Operations(),
                                  [&](int64_t, auto* matrix, auto* rhs, auto*) {
                                    SolveSmallTriangular(triangle, systems, matrix, rhs);
                                  });
      }
      ForEachSystem(pool, systems, systems.Operations(), [&](int64_t, const T* matrix, T* rhs) {
        SolveTriangular(triangle, systems.n, matrix, systems.rows, systems.cols, rhs);
      });
    });
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_triangular_solve, linalg::TriangularSolve);
