// Calls that XLA may record.
//
// XLA records what runs of a program's operations launch in command buffers (CUDA graphs), which
// take a fraction of the launches' time when the program runs again: a chain of small solves is
// mostly launches. A handler that says so runs once, while its stream is captured; what it has
// launched runs again when scratch memory that it was given is another's. So it may not ask for
// any, nor wait, nor call the vendor's libraries, which do both.
//
// It is for the target to say, not for a call. So targets that take a matrix in one launch or
// several, by its size, have a second handler of the same function, of the target's name with
// "_captured" behind it, that says so; and programs call that where RunsWithoutScratch.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/handlers.h"

// clang-format off
#define LINALG_FOR_EACH_CAPTURED(visit)                                          \
  visit(linalg_cholesky)                                                 \
  visit(linalg_cholesky_solve)                                           \
  visit(linalg_det)                                                      \
  visit(linalg_eig)                                                      \
  visit(linalg_eig_left)                                                 \
  visit(linalg_eigh)                                                     \
  visit(linalg_eigvals)                                                  \
  visit(linalg_eigvalsh)                                                 \
  visit(linalg_hessenberg)                                               \
  visit(linalg_hessenberg_h)                                             \
  visit(linalg_householder_product)                                      \
  visit(linalg_householder_qr)                                           \
  visit(linalg_inv)                                                      \
  visit(linalg_lu)                                                       \
  visit(linalg_lu_solve)                                                 \
  visit(linalg_qr)                                                       \
  visit(linalg_qr_pivoted)                                               \
  visit(linalg_qr_r)                                                     \
  visit(linalg_schur)                                                    \
  visit(linalg_slogdet)                                                  \
  visit(linalg_solve)                                                    \
  visit(linalg_solve_lu)                                                 \
  visit(linalg_svd)                                                      \
  visit(linalg_svdvals)                                                  \
  visit(linalg_triangular_solve)
// clang-format on

#define LINALG_DECLARE_CAPTURED(name) XLA_FFI_DECLARE_HANDLER_SYMBOL(name##_captured);
LINALG_FOR_EACH_CAPTURED(LINALG_DECLARE_CAPTURED)
#undef LINALG_DECLARE_CAPTURED

namespace linalg::cuda {

// Those of one matrix each, without the batch.
using Shapes = std::vector<std::vector<int64_t>>;

// Whether one of these targets, for such operands and results of `dtype`, needs no scratch memory
// whatever the batch and the GPU. `shared` is whether an operand serves a whole batch.
bool RunsWithoutScratch(std::string_view target, std::string_view dtype, const Shapes& operands,
                        const Shapes& results, bool shared);

}  // namespace linalg::cuda
