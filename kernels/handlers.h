// The targets: one handler of the same name, operands and attributes on every backend.
#pragma once

#include "xla/ffi/api/ffi.h"

// clang-format off
#define LINALG_FOR_EACH_TARGET(visit)    \
  visit(linalg_cholesky)                 \
  visit(linalg_cholesky_solve)           \
  visit(linalg_det)                      \
  visit(linalg_eig)                      \
  visit(linalg_eig_left)                 \
  visit(linalg_eigh)                     \
  visit(linalg_eigh_tridiagonal)         \
  visit(linalg_eigvals)                  \
  visit(linalg_eigvalsh)                 \
  visit(linalg_eigvalsh_tridiagonal)     \
  visit(linalg_hessenberg)               \
  visit(linalg_hessenberg_h)             \
  visit(linalg_householder_product)      \
  visit(linalg_householder_qr)           \
  visit(linalg_inv)                      \
  visit(linalg_lu)                       \
  visit(linalg_lu_pivots_to_permutation) \
  visit(linalg_lu_solve)                 \
  visit(linalg_qr)                       \
  visit(linalg_qr_pivoted)               \
  visit(linalg_qr_r)                     \
  visit(linalg_schur)                    \
  visit(linalg_slogdet)                  \
  visit(linalg_solve)                    \
  visit(linalg_svd)                      \
  visit(linalg_svdvals)                  \
  visit(linalg_triangular_solve)         \
  visit(linalg_tridiagonal_solve)
// clang-format on

#define LINALG_DECLARE_HANDLER(name) XLA_FFI_DECLARE_HANDLER_SYMBOL(name);
LINALG_FOR_EACH_TARGET(LINALG_DECLARE_HANDLER)
#undef LINALG_DECLARE_HANDLER
