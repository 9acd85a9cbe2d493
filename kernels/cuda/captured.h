// Calls that XLA may record in command buffers (CUDA graphs).
//
// A recorded launch takes a fraction of the time when the program runs again. A chain of small
// solves is mostly launches. The handler runs once, while its stream is captured. Its launches run
// again later, when its scratch memory may belong to another call. So a recorded handler may
// neither ask for scratch memory nor wait, and may not call the vendor's libraries, which do both.
//
// XLA asks the target, not the call. Some targets take one launch or several, by the size of the
// matrix. They have a second handler of the same function, whose name ends in "_captured". Programs
// call it where RunsWithoutScratch.
#pragma once

#include <string_view>

#include "kernels/cuda/cholesky_path.h"
#include "kernels/cuda/eig_path.h"
#include "kernels/cuda/eigh_path.h"
#include "kernels/cuda/lu_path.h"
#include "kernels/cuda/path.h"
#include "kernels/cuda/qr_path.h"
#include "kernels/cuda/solve_path.h"
#include "kernels/cuda/substitution_path.h"
#include "kernels/cuda/svd_path.h"
#include "kernels/handlers.h"

// Each target, and the function that chooses its path: kernels/cuda/*_path.h.
// clang-format off
#define LINALG_FOR_EACH_CAPTURED(visit)                          \
  visit(linalg_cholesky, CholeskyCall)                           \
  visit(linalg_cholesky_jittered, CholeskyCall)                  \
  visit(linalg_cholesky_solve, SubstitutionCall)                 \
  visit(linalg_det, DeterminantCall)                             \
  visit(linalg_det_cofactors, CofactorsCall)                     \
  visit(linalg_eig, EigCall<false>)                              \
  visit(linalg_eig_left, EigCall<true>)                          \
  visit(linalg_eigh, EighCall)                                   \
  visit(linalg_eigvals, EigCall<false>)                          \
  visit(linalg_eigvalsh, EighCall)                               \
  visit(linalg_hessenberg, HessenbergCall)                       \
  visit(linalg_hessenberg_h, HessenbergCall)                     \
  visit(linalg_householder_product, QrCall<QrResults::kProduct>) \
  visit(linalg_householder_qr, QrCall<QrResults::kNoQ>)          \
  visit(linalg_inv, SolveCall)                                   \
  visit(linalg_lu, LuCall)                                       \
  visit(linalg_lu_solve, SubstitutionCall)                       \
  visit(linalg_qr, QrCall<QrResults::kQ>)                        \
  visit(linalg_qr_pivoted, QrCall<QrResults::kPivotedQ>)         \
  visit(linalg_qr_r, QrCall<QrResults::kNoQ>)                    \
  visit(linalg_schur, SchurCall)                                 \
  visit(linalg_slogdet, DeterminantCall)                         \
  visit(linalg_slogdet_inv_transposed, CofactorsCall)            \
  visit(linalg_solve, SolveCall)                                 \
  visit(linalg_solve_lu, SolveCall)                              \
  visit(linalg_svd, SvdCall<true>)                               \
  visit(linalg_svdvals, SvdCall<false>)                          \
  visit(linalg_triangular_solve, SubstitutionCall)
// clang-format on

#define LINALG_DECLARE_CAPTURED(name, call) XLA_FFI_DECLARE_HANDLER_SYMBOL(name##_captured);
LINALG_FOR_EACH_CAPTURED(LINALG_DECLARE_CAPTURED)
#undef LINALG_DECLARE_CAPTURED

namespace linalg::cuda {

// Whether a target needs no scratch memory for such operands and results of `dtype`. The answer
// must hold for every batch and GPU. `shared` is whether an operand serves a whole batch.
bool RunsWithoutScratch(std::string_view target, std::string_view dtype, const Shapes& operands,
                        const Shapes& results, bool shared);

}  // namespace linalg::cuda
