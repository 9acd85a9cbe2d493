// The table of targets. Every backend that has a target has one handler with its name, operands and
// attributes. Targets are declared, bound and registered from this table. A test compares it with
// the signatures in linalg/.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/ffi.h"

namespace linalg {

enum Backends { kCpu = 1, kCuda = 2, kBoth = kCpu | kCuda };

// The backends of a target that a GPU has no use for. Programs for CUDA call what `on_gpu` says:
// docs/cuda.md has these texts.
consteval Backends CpuOnly([[maybe_unused]] std::string_view on_gpu) { return kCpu; }

// The target; the backends that have it; its operands and results; and its attributes, of
// type bool, or int64_t where IsIndex says so.
//
// An operand or result is a dtype (T, its Real, its Complex or Int32) and the sizes of one matrix.
// Sizes in lower case are free. Sizes in upper case follow from them:
//   X: min(m, n). Q: X or m. V: the rows of vh if Q is the columns of u.
//   H: m - 1, at least 0. J: n - 1. P: at least k. W: k + 1.
//   S, U: the sides of the operand that a matrix of n rows stands beside.
// "!" marks an operand without a batch.
// clang-format off
#define LINALG_FOR_EACH_TARGET(visit)                                                           \
  visit(linalg_balance, CpuOnly("each row waits for the row before"),                             \
        "Tnn > Tnn Rn In", "permute", "scale")                                                 \
  visit(linalg_banded_solve, kBoth, "TWn Tmn Tnm > Tnm I")                                      \
  visit(linalg_bidiagonal_svd_rows, CpuOnly("all singular vectors, of which some rows are taken"), \
        "Rn RJ Ik Im > Rn Rkn Rmn I")                                                           \
  visit(linalg_block_tridiagonal_cholesky, kBoth, "Tmnn THnn > Tmnn THnn R I")                  \
  visit(linalg_block_tridiagonal_chunks, CpuOnly("scans over the blocks of a chunk"),           \
        "Tmnn THnn > Tmnn THnn Tmnn R I")                                                       \
  visit(linalg_block_tridiagonal_chunks_solve, CpuOnly("scans over the blocks of a chunk"),     \
        "Tmnn THnn Tmnn Tmnk > Tmnk", "forward", "back")                                        \
  visit(linalg_block_tridiagonal_factor_solve, kBoth, "Tmnn THnn Tmnk > Tmnk",                  \
        "forward", "back")                                                                      \
  visit(linalg_block_tridiagonal_inverse_blocks, kBoth, "Tmnn THnn > Tmnn THnn")                \
  visit(linalg_block_tridiagonal_solve, kBoth, "THnn Tmnn THnn Tmnk > Tmnk I")                  \
  visit(linalg_block_tridiagonal_solve_logdet, kBoth, "Tmnn THnn Tmnk > Tmnk R I")              \
  visit(linalg_block_tridiagonal_solve_logdet_vjp, CpuOnly("solves and products"),              \
        "Tmnn THnn Tmnk Tmnk R > Tmnn THnn Tmnk")                                               \
  visit(linalg_cholesky, kBoth, "Tnn > Tnn I", "lower", "symmetrize")                           \
  visit(linalg_cholesky_banded, kBoth, "TWn > TWn I", "lower")                                  \
  visit(linalg_cholesky_banded_solve, kBoth, "TWn Tnm > Tnm", "lower")                          \
  visit(linalg_cholesky_full_jvp, CpuOnly("JAX's rule before 0.11.2"), "Tnn Tnn > Tnn")         \
  visit(linalg_cholesky_full_vjp, CpuOnly("JAX's rule before 0.11.2"), "Tnn Tnn > Tnn")         \
  visit(linalg_cholesky_jittered, kBoth, "Tnn Rk! > Tnn R I", "lower", "symmetrize")            \
  visit(linalg_cholesky_jvp, kBoth, "Tnn Tnn > Tnn", "lower", "symmetrize")                     \
  visit(linalg_cholesky_solve, kBoth, "Tnn Tnk > Tnk", "lower")                                 \
  visit(linalg_cholesky_update, CpuOnly("one triangular solve and sums"), "Tnn Tn > Tnn I",     \
        "downdate")                                                                             \
  visit(linalg_cholesky_update_vjp, CpuOnly("a scan over rows"), "Tnn Tn Tnn > Tnn Tn",         \
        "downdate")                                                                             \
  visit(linalg_cholesky_vjp, kBoth, "Tnn Tnn > Tnn", "lower", "symmetrize")                     \
  visit(linalg_det, kBoth, "Tnn > T")                                                           \
  visit(linalg_det_cofactors, kBoth, "Tnn > T Tnn")                                             \
  visit(linalg_eig, kBoth, "Tnn > Cn Cnn I")                                                    \
  visit(linalg_eig_generalized, CpuOnly("the eigenvectors of a rotated pencil's quotient"),      \
        "Tnn Tnn > Cn Tn Cnn I")                                                                \
  visit(linalg_eig_left, kBoth, "Tnn > Cn Cnn Cnn I")                                           \
  visit(linalg_eig_left_generalized,                                                            \
        CpuOnly("the eigenvectors of a rotated pencil's quotient"),                             \
        "Tnn Tnn > Cn Tn Cnn Cnn I")                                                            \
  visit(linalg_eigh, kBoth, "Tnn > Rn Tnn I", "lower", "symmetrize")                            \
  visit(linalg_eigh_jvp, kBoth, "Rn Tnn Tnn > Rn Tnn", "lower", "symmetrize")                   \
  visit(linalg_eigh_subset, CpuOnly("all eigenpairs, cut"), "Tnn > Rk Tnk R R R I",             \
        "count", "lower", "start", "symmetrize")                                                \
  visit(linalg_eigh_subset_factored, CpuOnly("all eigenpairs, cut"),                            \
        "Tnn > Rk Tnk R R R Tnn Tn Rn Rn I", "count", "lower", "start", "symmetrize")           \
  visit(linalg_eigh_subset_solve, CpuOnly("products with all eigenvectors"),                    \
        "Tnn Tnn Tn Rn Rn Rk Tnk Tnk > Tnk", "count", "lower", "start", "symmetrize")           \
  visit(linalg_eigh_tridiagonal, kBoth, "Rn RJ > Rn Rnn I")                                     \
  visit(linalg_eigh_tridiagonal_rows, CpuOnly("all eigenvectors, of which some rows are taken"),  \
        "Rn RJ Ik > Rn Rkn I")                                                                  \
  visit(linalg_eigh_tridiagonal_subset, CpuOnly("all eigenpairs, cut"),                         \
        "Rn TJ > Rk Tnk R R R I", "count", "start")                                             \
  visit(linalg_eigh_tridiagonal_subset_solve, CpuOnly("products with all eigenvectors"),        \
        "Rn TJ Rk Tnk Tnk > Tnk", "count", "start")                                             \
  visit(linalg_eigh_vjp, kBoth, "Rn Tnn Rn Tnn > Tnn", "lower", "symmetrize")                   \
  visit(linalg_eigvals, kBoth, "Tnn > Cn I")                                                    \
  visit(linalg_eigvals_generalized, CpuOnly("the eigenvalues of a rotated pencil's quotient"),   \
        "Tnn Tnn > Cn Tn I")                                                                    \
  visit(linalg_eigvalsh, kBoth, "Tnn > Rn I", "lower", "symmetrize")                            \
  visit(linalg_eigvalsh_subset, CpuOnly("all eigenvalues, cut"), "Tnn > Rk R R R I",            \
        "count", "lower", "start", "symmetrize")                                                \
  visit(linalg_eigvalsh_tridiagonal, kBoth, "Rn RJ > Rn I")                                     \
  visit(linalg_eigvalsh_tridiagonal_subset, CpuOnly("all eigenvalues, cut"),                    \
        "Rn TJ > Rk R R R I", "count", "start")                                                 \
  visit(linalg_hessenberg, kBoth, "Tnn > Tnn Tnn")                                              \
  visit(linalg_hessenberg_h, kBoth, "Tnn > Tnn")                                                \
  visit(linalg_householder_product, kBoth, "Tmn TX > Tmn")                                      \
  visit(linalg_householder_qr, kBoth, "Tmn > Tmn TX")                                           \
  visit(linalg_inv, kBoth, "Tnn > Tnn I")                                                       \
  visit(linalg_inverse_permutation, CpuOnly("XLA's sort"), "In In > In In")                     \
  visit(linalg_kalman_filter, kBoth,                                                            \
        "Rkm Rknn Rknn Rkmn Rkmm Rn Rnn Rkn Rkm Rkm > Rkn Rknn R I")                            \
  visit(linalg_kalman_filter_jvp, kBoth,                                                        \
        "Rkm Rknn Rknn Rkmn Rkmm Rn Rnn Rkn Rkm Rkm Rkn Rknn "                                  \
        "Rkm Rknn Rknn Rkmn Rkmm Rn Rnn Rkn Rkm > Rkn Rknn R")                                  \
  visit(linalg_kalman_filter_vjp, kBoth,                                                        \
        "Rkm Rknn Rknn Rkmn Rkmm Rn Rnn Rkn Rkm Rkm Rkn Rknn "                                  \
        "Rkn Rknn R > Rkm Rknn Rknn Rkmn Rkmm Rn Rnn Rkn Rkm")                                  \
  visit(linalg_kalman_means, CpuOnly("the Kalman filter of each series"),                       \
        "Rkm Rknn! Rknn! Rkmn! Rkmm! Rn Rnn! Rkn Rkm Rknn! > Rkn R I")                          \
  visit(linalg_kalman_smoother, kBoth,                                                          \
        "Rkm Rknn Rknn Rkmn Rkmm Rn Rnn Rkn Rkm Rkm Rkn Rknn > Rkn Rknn")                       \
  visit(linalg_kalman_smoother_jvp, kBoth,                                                     \
        "Rknn Rknn Rkn Rkn Rknn Rkn Rknn Rknn Rknn Rkn Rkn Rknn > Rkn Rknn")                    \
  visit(linalg_kalman_smoother_vjp, kBoth,                                                     \
        "Rknn Rknn Rkn Rkn Rknn Rkn Rknn Rkn Rknn > Rknn Rknn Rkn Rkn Rknn")                    \
  visit(linalg_lu, kBoth, "Tmn > Tmn IX Im I")                                                  \
  visit(linalg_lu_pivots_to_permutation, kBoth, "Ik > IP")                                      \
  visit(linalg_lu_solve, kBoth, "Tnn In Tnk > Tnk", "transpose", "conjugate")                   \
  visit(linalg_matmul, kBoth, "Tmk Tkn > Tmn", "conjugate_a", "conjugate_b")                    \
  visit(linalg_matmul_transpose_a, kBoth, "Tkm Tkn > Tmn", "conjugate_a", "conjugate_b")        \
  visit(linalg_matmul_transpose_b, kBoth, "Tmk Tnk > Tmn", "conjugate_a", "conjugate_b")        \
  visit(linalg_ormqr, CpuOnly("products and one triangular solve"), "Tnm TX TSU > TSU", "left", \
        "transpose")                                                                            \
  visit(linalg_parlett, CpuOnly("products and triangular solves"), "Tnn Tmn Tmn R > Tnn")       \
  visit(linalg_positive_solve_logdet, kBoth, "Tnn Tnk > Tnk R I")                               \
  visit(linalg_positive_solve_logdet_factor, kBoth, "Tnn Tnk > Tnk R Tnn I")                    \
  visit(linalg_positive_solve_logdet_jvp, CpuOnly("solves and products"),                       \
        "Tnn Tnk Tnn Tnk > Tnk R")                                                              \
  visit(linalg_positive_solve_logdet_vjp, CpuOnly("solves and products"),                       \
        "Tnn Tnk Tnk R > Tnn Tnk")                                                              \
  visit(linalg_qr, kBoth, "Tmn > TmQ TQn")                                                      \
  visit(linalg_qr_jvp, kBoth, "Tmn Tnn Tmn > Tmn Tnn")                                          \
  visit(linalg_qr_pivoted, kBoth, "Tmn > TmQ TQn In")                                           \
  visit(linalg_qr_r, kBoth, "Tmn > TXn")                                                        \
  visit(linalg_qr_vjp, kBoth, "Tmn Tnn Tmn Tnn > Tmn")                                          \
  visit(linalg_qz, CpuOnly("the Schur form of a rotated pencil's quotient"),                    \
        "Tnn Tnn > Tnn Tnn Tnn Tnn Cn Tn I")                                                    \
  visit(linalg_qz_reorder, CpuOnly("QR of eigenvectors in the new order"),                      \
        "Tnn Tnn Tnn Tnn In > Tnn Tnn Tnn Tnn Cn Tn I")                                         \
  visit(linalg_schur, kBoth, "Tnn > Tnn Tnn I")                                                 \
  visit(linalg_schur_reorder, CpuOnly("QR of eigenvectors in the new order"),                   \
        "Tnn Tnn In > Tnn Tnn I")                                                               \
  visit(linalg_slogdet, kBoth, "Tnn > T R")                                                     \
  visit(linalg_slogdet_inv_transposed, kBoth, "Tnn > T R Tnn")                                  \
  visit(linalg_solve, kBoth, "Tnn Tnk > Tnk I")                                                 \
  visit(linalg_solve_lu, kBoth, "Tnn Tnk > Tnk Tnn In I")                                       \
  visit(linalg_solve_slogdet,                                                                   \
        CpuOnly("an LU factorisation, solves, and the product of the pivots"),                  \
        "Tnn Tnk > Tnk T R I")                                                                  \
  visit(linalg_solve_slogdet_inv_transposed,                                                    \
        CpuOnly("an LU factorisation, solves, and the product of the pivots"),                  \
        "Tnn Tnk > Tnk T R Tnn I")                                                              \
  visit(linalg_svd, kBoth, "Tmn > TmQ RX TVn I")                                                \
  visit(linalg_svd_jvp, kBoth, "Tnn Rn Tnn Tnn > Tnn Rn Tnn")                                   \
  visit(linalg_svd_subset, CpuOnly("all singular vectors, cut"), "Tmn > Tmk Rk Tkn I",          \
        "count", "start")                                                                       \
  visit(linalg_svd_subset_factored, CpuOnly("all singular vectors, cut"),                       \
        "Tmn > Tmk Rk Tkn R R R TXX TX TXX TX Tmn TX RX RX I", "count", "start")                \
  visit(linalg_svd_subset_solve, CpuOnly("products with all singular vectors"),                 \
        "Tmn TXX TX TXX TX Tmn TX RX RX Rk Tmk Tkn Tmk Tnk > Tmk Tnk", "count", "start")        \
  visit(linalg_svd_vjp, kBoth, "Tnn Rn Tnn Tnn Rn Tnn > Tnn")                                   \
  visit(linalg_svdvals, kBoth, "Tmn > RX I")                                                    \
  visit(linalg_svdvals_subset, CpuOnly("all singular values, cut"), "Tmn > Rk I", "count",      \
        "start")                                                                                \
  visit(linalg_triangular_sqrt, CpuOnly("a triangular solve for each column"), "Tnn Tn > Tnn")  \
  visit(linalg_triangular_solve, kBoth, "Tnn TSU > TSU", "left_side", "lower", "transpose_a",   \
        "conjugate_a", "unit_diagonal")                                                         \
  visit(linalg_tridiagonal_solve, kBoth, "Tn Tn Tn Tnk > Tnk I", "perturb_singular")
// clang-format on

struct Target {
  std::string_view name;
  Backends backends;
  std::string_view signature;
  std::array<const char*, 5> attributes;  // null beyond its last one

  constexpr int operands() const { return Count(signature.substr(0, signature.find('>'))); }
  constexpr int results() const { return Count(signature.substr(signature.find('>'))); }

 private:
  // Each operand has a space behind it, and each result has one before it.
  static constexpr int Count(std::string_view side) {
    int count = 0;
    for (const char letter : side) count += letter == ' ';
    return count;
  }
};

#define LINALG_DESCRIBE_TARGET(name, backends, signature, ...) \
  {#name, backends, signature, {__VA_ARGS__}},
inline constexpr Target kTargets[] = {LINALG_FOR_EACH_TARGET(LINALG_DESCRIBE_TARGET)};
#undef LINALG_DESCRIBE_TARGET

// Whether an attribute counts values. The others are of type bool.
constexpr bool IsIndex(std::string_view attribute) {
  return attribute == "count" || attribute == "start";
}

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

template <size_t kTarget, size_t kAttribute>
using AttributeType =
    std::conditional_t<IsIndex(kTargets[kTarget].attributes[kAttribute]), int64_t, bool>;

// Adds the attributes from kAttribute on.
template <size_t kTarget, size_t kAttribute, class Binding>
auto WithAttributes(Binding&& binding) {
  constexpr const char* kName = kTargets[kTarget].attributes[kAttribute];
  using Type = AttributeType<kTarget, kAttribute>;
  if constexpr (kAttribute + 1 < CountAttributes(kTargets[kTarget])) {
    return WithAttributes<kTarget, kAttribute + 1>(std::move(binding).template Attr<Type>(kName));
  } else {
    return std::move(binding).template Attr<Type>(kName);
  }
}

template <size_t kTarget, class... Contexts>
auto Bind() {
  constexpr int kOperands = kTargets[kTarget].operands();
  constexpr int kResults = kTargets[kTarget].results();
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
