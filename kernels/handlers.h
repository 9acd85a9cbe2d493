// The table of targets. Every backend that has a target has one handler with its name, operands and
// attributes. Targets are declared, bound and registered from this table. A test compares it with
// the signatures in linalg/.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "kernels/ffi.h"

namespace linalg {

enum Backends { kCpu = 1, kCuda = 2, kBoth = kCpu | kCuda };

// The target, the backends that have it, its numbers of operands and results, and its attributes,
// which are of type bool.
// clang-format off
#define LINALG_FOR_EACH_TARGET(visit)                                              \
  visit(linalg_banded_solve, kBoth, 3, 2)                                          \
  visit(linalg_block_tridiagonal_cholesky, kCpu, 2, 4)                             \
  visit(linalg_block_tridiagonal_cholesky_solve, kCpu, 3, 1, "forward", "back")    \
  visit(linalg_block_tridiagonal_inverse_blocks, kCpu, 2, 2)                       \
  visit(linalg_block_tridiagonal_solve, kCpu, 4, 2)                                \
  visit(linalg_cholesky, kBoth, 1, 2, "lower", "symmetrize")                       \
  visit(linalg_cholesky_banded, kBoth, 1, 2, "lower")                              \
  visit(linalg_cholesky_banded_solve, kBoth, 2, 1, "lower")                        \
  visit(linalg_cholesky_full_jvp, kCpu, 2, 1)                                      \
  visit(linalg_cholesky_full_vjp, kCpu, 2, 1)                                      \
  visit(linalg_cholesky_jittered, kCpu, 2, 3, "lower", "symmetrize")               \
  visit(linalg_cholesky_jvp, kBoth, 2, 1, "lower", "symmetrize")                   \
  visit(linalg_cholesky_solve, kBoth, 2, 1, "lower")                               \
  visit(linalg_cholesky_update, kCpu, 2, 2, "downdate")                            \
  visit(linalg_cholesky_vjp, kBoth, 2, 1, "lower", "symmetrize")                   \
  visit(linalg_det, kBoth, 1, 1)                                                   \
  visit(linalg_det_cofactors, kBoth, 1, 2)                                         \
  visit(linalg_eig, kBoth, 1, 3)                                                   \
  visit(linalg_eig_left, kBoth, 1, 4)                                              \
  visit(linalg_eigh, kBoth, 1, 3, "lower", "symmetrize")                           \
  visit(linalg_eigh_jvp, kBoth, 3, 2, "lower", "symmetrize")                       \
  visit(linalg_eigh_tridiagonal, kBoth, 2, 3)                                      \
  visit(linalg_eigh_vjp, kBoth, 4, 1, "lower", "symmetrize")                       \
  visit(linalg_eigvals, kBoth, 1, 2)                                               \
  visit(linalg_eigvalsh, kBoth, 1, 2, "lower", "symmetrize")                       \
  visit(linalg_eigvalsh_tridiagonal, kBoth, 2, 2)                                  \
  visit(linalg_hessenberg, kBoth, 1, 2)                                            \
  visit(linalg_hessenberg_h, kBoth, 1, 1)                                          \
  visit(linalg_householder_product, kBoth, 2, 1)                                   \
  visit(linalg_householder_qr, kBoth, 1, 2)                                        \
  visit(linalg_inv, kBoth, 1, 2)                                                   \
  visit(linalg_inverse_permutation, kCpu, 2, 2)                                    \
  visit(linalg_kalman_filter, kCpu, 10, 4)                                         \
  visit(linalg_kalman_filter_jvp, kCpu, 21, 3)                                     \
  visit(linalg_kalman_filter_vjp, kCpu, 15, 9)                                     \
  visit(linalg_kalman_smoother, kCpu, 12, 2)                                       \
  visit(linalg_kalman_smoother_jvp, kCpu, 12, 2)                                   \
  visit(linalg_kalman_smoother_vjp, kCpu, 9, 5)                                    \
  visit(linalg_lu, kBoth, 1, 4)                                                    \
  visit(linalg_lu_pivots_to_permutation, kBoth, 1, 1)                              \
  visit(linalg_lu_solve, kBoth, 3, 1, "transpose", "conjugate")                    \
  visit(linalg_matmul, kBoth, 2, 1, "conjugate_a", "conjugate_b")                  \
  visit(linalg_matmul_transpose_a, kBoth, 2, 1, "conjugate_a", "conjugate_b")      \
  visit(linalg_matmul_transpose_b, kBoth, 2, 1, "conjugate_a", "conjugate_b")      \
  visit(linalg_ormqr, kCpu, 3, 1, "left", "transpose")                             \
  visit(linalg_parlett, kCpu, 4, 1)                                                \
  visit(linalg_qr, kBoth, 1, 2)                                                    \
  visit(linalg_qr_jvp, kBoth, 3, 2)                                                \
  visit(linalg_qr_pivoted, kBoth, 1, 3)                                            \
  visit(linalg_qr_r, kBoth, 1, 1)                                                  \
  visit(linalg_qr_vjp, kBoth, 4, 1)                                                \
  visit(linalg_schur, kBoth, 1, 3)                                                 \
  visit(linalg_slogdet, kBoth, 1, 2)                                               \
  visit(linalg_slogdet_inv_transposed, kBoth, 1, 3)                                \
  visit(linalg_solve, kBoth, 2, 2)                                                 \
  visit(linalg_solve_lu, kBoth, 2, 4)                                              \
  visit(linalg_svd, kBoth, 1, 4)                                                   \
  visit(linalg_svd_jvp, kBoth, 4, 3)                                               \
  visit(linalg_svd_vjp, kBoth, 6, 1)                                               \
  visit(linalg_svdvals, kBoth, 1, 2)                                               \
  visit(linalg_triangular_solve, kBoth, 2, 1, "left_side", "lower", "transpose_a", \
        "conjugate_a", "unit_diagonal")                                            \
  visit(linalg_tridiagonal_solve, kBoth, 4, 2, "perturb_singular")
// clang-format on

struct Target {
  std::string_view name;
  Backends backends;
  int operands, results;
  std::array<const char*, 5> attributes;  // null beyond its last one
};

#define LINALG_DESCRIBE_TARGET(name, backends, operands, results, ...) \
  {#name, backends, operands, results, {__VA_ARGS__}},
inline constexpr Target kTargets[] = {LINALG_FOR_EACH_TARGET(LINALG_DESCRIBE_TARGET)};
#undef LINALG_DESCRIBE_TARGET

consteval size_t TargetIndex(std::string_view name) {
  size_t i = 0;
  while (kTargets[i].name != name) ++i;  // a name that is not in the table does not compile
  return i;
}

namespace internal {

consteval size_t CountAttributes(const Target& target) {
  size_t count = 0;
  while (count < target.attributes.size() && target.attributes[count] != nullptr) ++count;
  return count;
}

// Adds the attributes from kAttribute on.
template <size_t kTarget, size_t kAttribute, class Binding>
auto WithAttributes(Binding&& binding) {
  constexpr const char* kName = kTargets[kTarget].attributes[kAttribute];
  if constexpr (kAttribute + 1 < CountAttributes(kTargets[kTarget])) {
    return WithAttributes<kTarget, kAttribute + 1>(std::move(binding).template Attr<bool>(kName));
  } else {
    return std::move(binding).template Attr<bool>(kName);
  }
}

template <size_t kTarget, class... Contexts>
auto Bind() {
  constexpr int kOperands = kTargets[kTarget].operands, kResults = kTargets[kTarget].results;
  if constexpr (CountAttributes(kTargets[kTarget]) > 0) {
    return WithAttributes<kTarget, 0>(Signature<kOperands, kResults, Contexts...>());
  } else {
    return Signature<kOperands, kResults, Contexts...>();
  }
}

// A handler's first arguments are its contexts.
template <size_t kTarget, class Stream, class... Rest>
auto BindFor(void (*)(Stream*, ffi::AnyBuffer, Rest...)) {
  return Bind<kTarget, ffi::PlatformStream<Stream*>>();
}
template <size_t kTarget, class Stream, class Scratch, class... Rest>
auto BindFor(void (*)(Stream*, Scratch, Rest...)) {
  return Bind<kTarget, ffi::PlatformStream<Stream*>, Scratch>();
}

// The handler that XLA calls: an exception of `function` becomes an error that names the target.
// All functions with equal arguments share its type, which a file compiles once.
template <class... Arguments>
auto GuardFor(std::string_view target, void (*function)(Arguments...)) {
  return [target, function](Arguments... arguments) {
    return Guard(target, [&] { function(std::move(arguments)...); });
  };
}

}  // namespace internal
}  // namespace linalg

#define LINALG_DECLARE_HANDLER(name, ...) XLA_FFI_DECLARE_HANDLER_SYMBOL(name);
LINALG_FOR_EACH_TARGET(LINALG_DECLARE_HANDLER)
#undef LINALG_DECLARE_HANDLER

// Defines the handler of a target in the table: `function`, and XLA's traits if it has any.
#define LINALG_HANDLER(name, function, ...)                 \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(                            \
      name, (linalg::internal::GuardFor(#name, &function)), \
      (linalg::internal::BindFor<linalg::TargetIndex(#name)>(&function)), ##__VA_ARGS__)
