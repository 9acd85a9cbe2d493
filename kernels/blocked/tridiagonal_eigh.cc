#include "kernels/blocked/tridiagonal_eigh.h"

#include <algorithm>
#include <cmath>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/small/eigh.h"

namespace linalg::blocked {
namespace {

// The largest order of a leaf, which QL solves. At this order QL takes as long as two leaves and
// their merge.
inline constexpr int64_t kMostLeaf = 16;
template <class V>
inline constexpr int64_t kRegistersOfLeaf =
    (kMostLeaf + 2 + 2 * small::kPendingSweeps<V>)*kMostLeaf;

}  // namespace

template <class R>
TridiagonalEigh<R>::TridiagonalEigh(int64_t n, bool vectors, Chosen chosen)
    : n_(n),
      leaves_(n, kMostLeaf, /*between=*/0),
      kept_(vectors ? Kept::kAll : Kept::kEnds),
      chosen_(chosen),
      // The lower half's rows begin at a register boundary.
      memory_(RowArena<R>::RowCount(vectors ? n : 2) + HalvesMerge<R>::RowCount(n, vectors ? n : 1),
              n + kWidth<R>),
      rows_(memory_.rows()),
      blocks_memory_(0, 0),
      single_memory_(0, 0),
      blocks_(blocks_memory_.rows()),
      single_(single_memory_.rows()),
      z_(rows_.Take(vectors ? n : 2)),
      merge_(n, vectors ? n : 1, rows_),
      leaf_(new V[kRegistersOfLeaf<V>]) {}

template <class R>
TridiagonalEigh<R>::TridiagonalEigh(int64_t n, int64_t begin, int64_t end)
    : n_(n),
      begin_(begin),
      end_(end),
      leaves_(n, kMostLeaf, /*between=*/0),
      kept_(Kept::kSome),
      chosen_{0, n},
      memory_(2 * RowArena<R>::RowCount(n) + RowArena<R>::RowCount(HalvesMerge<R>::kBlock),
              end - begin + 2 + kWidth<R>),
      rows_(memory_.rows()),
      blocks_memory_(2 * RowArena<R>::RowCount(n), HalvesMerge<R>::kBlock),
      single_memory_(HalvesMerge<R>::kSingleRows, n + kWidth<R>),
      blocks_(blocks_memory_.rows()),
      single_(single_memory_.rows()),
      z_(rows_.Take(n)),
      merge_(n, rows_, blocks_, single_),
      leaf_(new V[kRegistersOfLeaf<V>]) {}

template <class R>
auto TridiagonalEigh<R>::ColumnsOf(int64_t first, int64_t upper, int64_t lower) const -> Columns {
  if (kept_ != Kept::kSome) return {.first = first, .upper = upper, .lower = lower};
  const auto kept_before = [&](int64_t i) { return std::clamp(i, begin_, end_) - begin_; };
  const int64_t low = kept_before(first), middle = kept_before(first + upper);
  return {.first = low,
          .upper = middle - low + 1,
          .lower = kept_before(first + upper + lower) - middle + 1};
}

template <class R>
int TridiagonalEigh<R>::SolveLeaves(R* d, const R* e) {
  const int order = static_cast<int>(leaves_.LargestSize());
  V* const diagonal = leaf_.get();
  V *const beside = diagonal + kMostLeaf, *const z = beside + kMostLeaf;
  V *const sine = z + kMostLeaf * kMostLeaf, *const shear = sine + small::kPendingSweeps<V> * order;
  V failed{};
  const auto solve = [&] {
    small::PendingRotations<false, V, V> rotations(z, order, order, sine, shear);
    failed = failed + small::ImplicitQl(diagonal, beside, order, rotations);
  };
  leaves_.ForEachRegister(
      d, e, diagonal, beside, solve, [&](int lane, int64_t first, int64_t size) {
        const auto sorted = SortLane<kMostLeaf>(diagonal, lane, size);
        for (int64_t i = 0; i < size; ++i) {
          d[first + i] = diagonal[sorted[i]][lane];
          const V* const vector = z + sorted[i] * order;
          if (kept_ == Kept::kAll) {
            R* const row = z_.At(first + i, first).data;
            for (int64_t j = 0; j < size; ++j) row[j] = vector[j][lane];
          } else if (kept_ == Kept::kSome) {
            R* row = z_.At(first + i, ColumnsOf(first, size, 0).first).data;
            *row++ = vector[0][lane];
            const int64_t last = std::min(end_ - first, size);
            for (int64_t j = std::max<int64_t>(begin_ - first, 0); j < last; ++j) {
              *row++ = vector[j][lane];
            }
            *row = vector[size - 1][lane];
          } else {
            *z_.At(0, first + i).data = vector[0][lane];
            *z_.At(1, first + i).data = vector[size - 1][lane];
          }
        }
      });
  return static_cast<int>(SumOfLanes(failed));
}

template <class R>
void TridiagonalEigh<R>::RotateVectors(Halves halves, int64_t i, int64_t j, R cosine, R sine) {
  const int64_t first = halves.first;
  if (kept_ != Kept::kEnds) {
    const Columns columns = ColumnsOf(first, halves.upper, halves.lower);
    RotatePair(z_.At(first + i, columns.first).data, z_.At(first + j, columns.first).data,
               columns.count(), cosine, sine);
  } else {
    for (int end = 0; end < 2; ++end) {
      RotatePair(z_.At(end, first + i).data, z_.At(end, first + j).data, 1, cosine, sine);
    }
  }
}

// Sets the weights of the rank-one update that couples two halves. They are the last elements of
// the upper half's eigenvectors and the first of the lower half's, each times √½. Writes zeros
// beyond the halves.
template <class R>
void TridiagonalEigh<R>::SetWeights(Halves halves, R sign) {
  const int64_t upper = halves.upper, size = halves.size();
  const R root = std::sqrt(R(0.5));
  const Columns columns = ColumnsOf(halves.first, upper, halves.lower);
  for (int64_t i = 0; i < size; ++i) {
    const bool is_upper = i < upper;
    const R factor = is_upper ? root : sign * root;
    const Half half = is_upper ? Half::kUpper : Half::kLower;
    if (kept_ != Kept::kEnds) {
      R* const row = z_.At(halves.first + i, columns.first).data;
      const bool is_before = kept_ == Kept::kAll ? is_upper : !is_upper;
      merge_.SetWeight(i, factor * row[columns.upper - is_before], half);
      if (is_upper) {
        std::fill_n(row + columns.upper, columns.lower, R(0));
      } else {
        std::fill_n(row, columns.upper, R(0));
      }
    } else {
      R& inner = *z_.At(is_upper, halves.first + i).data;
      merge_.SetWeight(i, factor * inner, half);
      inner = 0;
    }
  }
}

// Merges the eigenvalues and eigenvectors of two halves, which are coupled by `beside`.
template <class R>
int TridiagonalEigh<R>::Merge(Halves halves, R beside, R* d, const RunTasks& run_tasks) {
  const int64_t first = halves.first;
  SetWeights(halves, beside < 0 ? R(-1) : R(1));
  const R rho = 2 * std::abs(beside);
  R largest = rho;
  for (int64_t i = 0; i < halves.size(); ++i) largest = std::max(largest, std::abs(d[i]));
  merge_.Deflate(halves, rho, NegligibleIn(largest), d,
                 [&](auto... arguments) { RotateVectors(halves, arguments...); });
  const int64_t count = merge_.kept_count();
  int failed = 0;
  if (count == 1) {
    const R weight = merge_.weight(0);
    merge_.SetOnly(MulAdd(rho * weight, weight, d[merge_.kept(0)]), 1);
  } else if (count > 1) {
    R unscale;
    largest = rho;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(d[merge_.kept(i)]));
    const R scale = PowerOfTwoScale(largest, unscale);
    merge_.SetSecular(scale, 1, d);
    failed = merge_.template FindVectors<PlainPoles>(scale * rho, unscale, run_tasks);
  }
  merge_.WriteValues(d);
  if (kept_ != Kept::kEnds) {
    const Columns columns = ColumnsOf(first, halves.upper, halves.lower);
    const Chosen wanted = halves.size() == n_ ? chosen_ : Chosen{0, halves.size()};
    merge_.WriteVectors(columns.upper, columns.lower, columns.upper, wanted,
                        z_.At(first, columns.first), run_tasks, [&](int64_t begin, int64_t end) {
                          merge_.template MakeColumns<PlainPoles>(begin, end, run_tasks);
                        });
  } else {
    for (int end = 0; end < 2; ++end) merge_.WriteElements(z_.At(end, first).data);
  }
  return failed;
}

// Does the work of Solve for a matrix of a norm near 1.
template <class R>
int TridiagonalEigh<R>::SolveScaled(R* d, const R* e, const RunTasks& run_tasks) {
  leaves_.ForEachMerge([&](Halves halves) {
    const int64_t middle = halves.first + halves.upper;
    const R size = std::abs(e[middle - 1]);
    d[middle - 1] -= size;
    d[middle] -= size;
  });
  int failed = SolveLeaves(d, e);
  leaves_.ForEachMerge([&](Halves halves) {
    failed += Merge(halves, e[halves.first + halves.upper - 1], d + halves.first, run_tasks);
  });
  return failed;
}

template <class R>
int TridiagonalEigh<R>::Solve(R* d, R* e, const RunTasks& run_tasks) {
  RowExtent<Register<R>> extent;
  extent.Add(d, n_);
  extent.Add(e, n_ - 1);
  if (!extent.Finite()) return kNotFinite;
  R unscale;
  const R scale = extent.Scale(unscale);
  for (int64_t i = 0; i < n_; ++i) d[i] *= scale;
  for (int64_t i = 0; i < n_ - 1; ++i) e[i] *= scale;
  const int failed = SolveScaled(d, e, run_tasks);
  for (int64_t i = 0; i < n_; ++i) d[i] *= unscale;
  return failed;
}

template class TridiagonalEigh<float>;
template class TridiagonalEigh<double>;

}  // namespace linalg::blocked
