#include "kernels/cuda/captured.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/arithmetic/element.h"
#include "kernels/cuda/tuning.h"
#include "kernels/small/eigh.h"

namespace linalg::cuda {
namespace {

// The path of a target's matrices where a block has but kTeamAnywhereBytes of shared memory; what
// the smaller arrays of a team take is counted where it may be more than is left beside that.
template <class T>
GpuPath PathOf(std::string_view target, const Shapes& operands, const Shapes& results,
               bool shared) {
  using E = Element<T>;
  using V = RealElement<E>;
  constexpr int64_t kBytes = sizeof(T), kNever = std::numeric_limits<int64_t>::max();
  const auto is = [&](auto... names) { return ((target == names) || ...); };
  const auto padded = [](int64_t rows, int64_t cols) { return rows * (cols | 1) * kBytes; };
  const auto in_team = [](int64_t bytes) { return [=] { return bytes <= kTeamAnywhereBytes; }; };
  const auto if_room = [](int64_t bytes) {
    return bytes <= kTeamAnywhereBytes ? GpuPath::kTeam : GpuPath::kBlock;
  };
  const int64_t m = operands.at(0).at(0), n = operands.at(0).at(1);

  if (is("linalg_cholesky")) return ChooseCholesky<E>(n, in_team(padded(n, n)));
  if (is("linalg_lu", "linalg_det", "linalg_slogdet")) {
    const int64_t integers = m + std::min(m, n);  // the permutation and the pivots
    return ChooseLu<E>(m, n, m * n * kBytes, in_team(padded(m, n) + integers * 4));
  }
  if (is("linalg_solve", "linalg_solve_lu", "linalg_inv")) {
    const int64_t cols = operands.back().at(1);
    return ChooseSolve<E>(n, cols, shared, in_team(padded(n, n) + padded(n, cols)));
  }
  if (is("linalg_triangular_solve", "linalg_cholesky_solve", "linalg_lu_solve")) {
    const int64_t rows = operands.back().at(0), cols = operands.back().at(1);
    const auto room = [&] {
      return (kTeamAnywhereBytes - padded(n, n)) / (std::max<int64_t>(n, 1) * kBytes) - 2;
    };
    return ChooseSubstitution(n, rows == n ? cols : rows, (n * n + rows * cols) * kBytes, false,
                              room);
  }
  if (is("linalg_qr", "linalg_qr_pivoted", "linalg_qr_r", "linalg_householder_qr",
         "linalg_householder_product")) {
    const bool has_q = is("linalg_qr", "linalg_qr_pivoted");
    const int64_t cols = has_q ? std::max(n, results.at(0).at(1)) : n, count = std::min(m, n);
    return ChooseQr(is("linalg_qr_pivoted"), count, (m * cols + m * n + count) * kBytes,
                    padded(m, cols) + (m + n) * kBytes, 0, kTeamAnywhereBytes);
  }
  if (is("linalg_eigh", "linalg_eigvalsh")) {
    const int64_t size = n <= kTeamEigh ? small::SizeOf<small::EigenWork<E, V>>(n, true) : kNever;
    return n <= kTeamEigh
               ? ChooseEigh(n, size * static_cast<int64_t>(sizeof(V)), [] { return false; })
               : GpuPath::kVendor;
  }
  if (is("linalg_svd", "linalg_svdvals")) {
    const bool vectors = is("linalg_svd");
    const int64_t longer = std::max(m, n), shorter = std::min(m, n);
    const int64_t width = !vectors ? shorter : m >= n ? results.at(0).at(1) : results.at(2).at(0);
    const int64_t u_bytes = padded(longer, width), v_bytes = vectors ? padded(shorter, shorter) : 0;
    return ChooseSvd(longer, shorter, kNever, u_bytes + v_bytes, kNever, 0, kTeamAnywhereBytes);
  }
  if (is("linalg_hessenberg", "linalg_hessenberg_h")) return if_room(padded(n, n));
  if (is("linalg_schur")) return if_room(2 * padded(n, n));
  if (is("linalg_eig", "linalg_eig_left", "linalg_eigvals")) {
    const GpuPath path = ChooseEig(n, is("linalg_eig_left"), 0);
    return path == GpuPath::kTeam ? if_room(4 * padded(n, n))
                                  : path;  // one of complex numbers, two T
  }
  throw std::invalid_argument(std::string(target) + " has no handler for recorded calls");
}

template <class T>
bool InOneLaunch(std::string_view target, const Shapes& operands, const Shapes& results,
                 bool shared) {
  const GpuPath path = PathOf<T>(target, operands, results, shared);
  return path == GpuPath::kThread || path == GpuPath::kWarp || path == GpuPath::kTeam;
}

}  // namespace

bool RunsWithoutScratch(std::string_view target, std::string_view dtype, const Shapes& operands,
                        const Shapes& results, bool shared) {
  const auto ask = [&]<class T>(std::type_identity<T>) {
    return InOneLaunch<T>(target, operands, results, shared);
  };
  if (dtype == "float32") return ask(std::type_identity<float>{});
  if (dtype == "float64") return ask(std::type_identity<double>{});
  if (dtype == "complex64") return ask(std::type_identity<std::complex<float>>{});
  if (dtype == "complex128") return ask(std::type_identity<std::complex<double>>{});
  return false;
}

}  // namespace linalg::cuda
