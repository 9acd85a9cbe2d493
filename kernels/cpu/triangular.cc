// Triangular systems: one trsm (trsv for one right-hand side) per matrix, in place in the output
// and without a transposition.
#include "kernels/cpu/triangular.h"

#include "kernels/handlers.h"

namespace linalg {
namespace {

ffi::Error TriangularSolve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b,
                           ffi::Result<ffi::AnyBuffer> x, bool left_side, bool lower,
                           bool transpose_a, bool conjugate_a, bool unit_diagonal) {
  return Guard("linalg_triangular_solve", [&] {
    lapack::Load();
    const Triangle triangle{.lower = lower,
                            .transpose = transpose_a,
                            .conjugate = conjugate_a,
                            .unit_diagonal = unit_diagonal,
                            .left_side = left_side};
    const BatchShape rhs = SplitBatch(b, 2, "b");
    const int64_t n = left_side ? rhs.rows : rhs.cols;
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      ForEachRightHandSide<T>(pool, a, b, x, left_side, [&](int64_t, const T* matrix, T* solution) {
        SolveTriangular(triangle, n, matrix, rhs.rows, rhs.cols, solution);
      });
    });
  });
}

}  // namespace
}  // namespace linalg

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_triangular_solve, linalg::TriangularSolve,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Attr<bool>("left_side")
                                  .Attr<bool>("lower")
                                  .Attr<bool>("transpose_a")
                                  .Attr<bool>("conjugate_a")
                                  .Attr<bool>("unit_diagonal"));
