// Triangular systems: in lanes, in tiles, or by one trsm per matrix (trsv for one right-hand side).
// BLAS works in place in the output, without a transposition.
#include "kernels/cpu/handler.h"
#include "kernels/cpu/substitution.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

void TriangularSolve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x,
                     bool left_side, bool lower, bool transpose_a, bool conjugate_a,
                     bool unit_diagonal) {
  const Triangle triangle{.lower = lower,
                          .transpose = transpose_a,
                          .conjugate = conjugate_a,
                          .unit_diagonal = unit_diagonal,
                          .left_side = left_side};
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, left_side);
    RunOnPath(
        pool,
        SystemsProblem{
            systems,
            [&](int64_t, auto* matrix, auto* rhs, auto*) {
              DispatchSize(systems.n, [&](auto n) {
                small::TriangularSolve(triangle, n, matrix, ToInt(systems.rows),
                                       ToInt(systems.cols), rhs);
              });
            },
            [&](int64_t, const Element<T>* matrix, auto& rhs) { rhs.Solve(triangle, matrix); },
            [&](int64_t, const T* matrix, blocked::Rows<T> rhs, auto& substitution,
                const blocked::RunTasks& run_tasks) {
              substitution.Solve(triangle, matrix, systems.nrhs(), rhs, run_tasks);
            },
            [&](int64_t, const T* matrix, T* rhs) {
              SolveTriangular(pool, triangle, systems.n, matrix, systems.rows, systems.cols, rhs);
            }});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_triangular_solve, linalg::TriangularSolve);
