#include "kernels/blocked/bidiagonal_svd.h"

#include <algorithm>
#include <cmath>

#include "kernels/arithmetic/scale.h"
#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/small/golub_kahan.h"

namespace linalg::blocked {
namespace {

// The most rows of a leaf, which QR solves.
inline constexpr int64_t kMostLeaf = 12;

// The singular vectors of leaves, in rows, for rotations.
template <class V>
struct LeafVectors {
  V *right, *left;
  int rows;  // the right vectors have one row more

  V* RightRow(int i) const { return right + i * (rows + 1); }
  V* LeftRow(int i) const { return left + i * rows; }
  LINALG_INLINE void RotateRight(int i, int j, V cosine, V sine) const {
    RotatePair(RightRow(i), RightRow(j), rows + 1, cosine, sine);
  }
  LINALG_INLINE void Right(int i, Mask<V> on, const PlaneRotation<V>& rotation) const {
    RotateRight(i, i + 1, Cosine(on, rotation), Sine(on, rotation));
  }
  LINALG_INLINE void Left(int i, Mask<V> on, const PlaneRotation<V>& rotation) const {
    RotatePair(LeftRow(i), LeftRow(i + 1), rows, Cosine(on, rotation), Sine(on, rotation));
  }
  LINALG_INLINE void Skip(int) const {}
  LINALG_INLINE void EndSweep(int, int) const {}
  LINALG_INLINE void End(V*) const {}
  LINALG_INLINE void Negate(int i, Mask<V> negative) const {
    V* const row = RightRow(i);
    for (int j = 0; j <= rows; ++j) row[j] = negative ? -row[j] : row[j];
  }

  void SetIdentity() const {
    std::fill_n(right, (rows + 1) * (rows + 1), V{});
    std::fill_n(left, rows * rows, V{});
    for (int i = 0; i <= rows; ++i) RightRow(i)[i] = Number<V>(1);
    for (int i = 0; i < rows; ++i) LeftRow(i)[i] = Number<V>(1);
  }

 private:
  static V Cosine(Mask<V> on, const PlaneRotation<V>& rotation) {
    return on ? rotation.cosine : Number<V>(1);
  }
  static V Sine(Mask<V> on, const PlaneRotation<V>& rotation) { return on ? rotation.sine : V{}; }
};

inline constexpr int64_t kRegistersOfLeaf =
    (kMostLeaf + 1) * (kMostLeaf + 1) + kMostLeaf * (kMostLeaf + 2);

}  // namespace

BidiagonalSvd::BidiagonalSvd(int64_t n, bool vectors, Chosen chosen)
    : n_(n),
      leaves_(n, kMostLeaf, /*between=*/1),
      kept_(vectors ? Kept::kAll : Kept::kEnds),
      chosen_(chosen),
      // The lower half's rows begin at a register boundary.
      memory_(RowArena<R>::RowCount(vectors ? n : 0) + RowArena<R>::RowCount(vectors ? n + 1 : 2) +
                  HalvesMerge<R>::RowCount(n, vectors ? n : 1),
              n + 1 + kWidth<R>),
      rows_(memory_.rows()),
      blocks_memory_(0, 0),
      single_memory_(0, 0),
      blocks_(blocks_memory_.rows()),
      single_(single_memory_.rows()),
      left_{rows_.Take(vectors ? n : 0), 0, {0, n}},
      right_{rows_.Take(vectors ? n + 1 : 2), 1, {0, n + 1}},
      merge_(n, vectors ? n : 1, rows_),
      between_(new R[n]),
      leaf_(new V[kRegistersOfLeaf]) {}

BidiagonalSvd::BidiagonalSvd(int64_t n, RowRange left, RowRange right)
    : n_(n),
      leaves_(n, kMostLeaf, /*between=*/1),
      kept_(Kept::kSome),
      chosen_{0, n},
      memory_(3 * RowArena<R>::RowCount(n + 1) + RowArena<R>::RowCount(HalvesMerge<R>::kBlock),
              std::max(left.end - left.begin, right.end - right.begin) + 2 + kWidth<R>),
      rows_(memory_.rows()),
      blocks_memory_(2 * RowArena<R>::RowCount(n), HalvesMerge<R>::kBlock),
      single_memory_(HalvesMerge<R>::kSingleRows, n + kWidth<R>),
      blocks_(blocks_memory_.rows()),
      single_(single_memory_.rows()),
      left_{rows_.Take(n), 0, left},
      right_{rows_.Take(n + 1), 1, right},
      merge_(n, rows_, blocks_, single_),
      between_(new R[n]),
      leaf_(new V[kRegistersOfLeaf]) {}

auto BidiagonalSvd::ColumnsOf(const Side& side, Halves halves) const -> Columns {
  const int64_t between = 1 - side.more, upper = halves.upper + side.more;
  const int64_t lower = halves.lower + side.more;
  if (kept_ != Kept::kSome) {
    return {.first = halves.first, .upper = upper, .between = between, .lower = lower};
  }
  const auto kept_before = [&](int64_t i) {
    return std::clamp(i, side.range.begin, side.range.end) - side.range.begin;
  };
  const int64_t middle = halves.first + upper;
  const int64_t low = kept_before(halves.first), high = kept_before(middle);
  const int64_t next = kept_before(middle + between), end = kept_before(middle + between + lower);
  return {.first = low,
          .upper = high - low + side.more,
          .between = next - high,
          .lower = end - next + side.more};
}

double* BidiagonalSvd::Inner(Halves halves, int64_t vector, bool is_upper) const {
  if (kept_ == Kept::kEnds) return right_.z.At(is_upper, vector).data;
  const Columns columns = ColumnsOf(right_, halves);
  // Beside kept elements lie the ends, in the other half's columns.
  const bool is_before = (kept_ == Kept::kAll) == is_upper;
  return right_.z.At(vector, columns.first + columns.upper - is_before).data;
}

int BidiagonalSvd::SolveLeaves(R* d, const R* e) {
  const int order = static_cast<int>(leaves_.LargestSize());
  V* const diagonal = leaf_.get();
  V* const beside = diagonal + kMostLeaf;
  V* const right = beside + kMostLeaf;
  const LeafVectors<V> z{right, right + (kMostLeaf + 1) * (kMostLeaf + 1), order};
  V failed{};
  const auto solve = [&] {
    z.SetIdentity();
    // Rotates the last column to zero.
    V last = beside[order - 1];
    for (int i = order - 1; i >= 0 && Any(last != V{}); --i) {
      const PlaneRotation<V> rotation(diagonal[i], last);
      z.RotateRight(i, order, rotation.cosine, rotation.sine);
      diagonal[i] = rotation.r;
      if (i == 0) break;
      last = -rotation.sine * beside[i - 1];
      beside[i - 1] = rotation.cosine * beside[i - 1];
    }
    failed = failed + small::GolubKahan(diagonal, beside, order, z);
  };
  // Writes the elements of a leaf's vector that are kept.
  const auto write = [&](const Side& side, int64_t target, int64_t first, int64_t size,
                         const V* vector, int lane) {
    const bool has_ends = kept_ == Kept::kSome && side.more > 0;
    const int64_t begin = std::clamp(first, side.range.begin, side.range.end) - first;
    const int64_t end = std::clamp(first + size, side.range.begin, side.range.end) - first;
    R* row = side.z.At(target, begin + first - side.range.begin).data;
    if (has_ends) *row++ = vector[0][lane];
    for (int64_t j = begin; j < end; ++j) *row++ = vector[j][lane];
    if (has_ends) *row = vector[size - 1][lane];
  };
  leaves_.ForEachRegister(
      d, e, diagonal, beside, solve, [&](int lane, int64_t first, int64_t size) {
        const auto sorted = SortLane<kMostLeaf>(diagonal, lane, size);
        for (int64_t i = 0; i <= size; ++i) {
          const int64_t row = i < size ? sorted[i] : size;
          const V* const right_vector = z.RightRow(static_cast<int>(row));
          if (kept_ == Kept::kEnds) {
            *right_.z.At(0, first + i).data = right_vector[0][lane];
            *right_.z.At(1, first + i).data = right_vector[size][lane];
          } else {
            write(right_, first + i, first, size + 1, right_vector, lane);
          }
          if (i == size) break;
          d[first + i] = diagonal[row][lane];
          if (kept_ == Kept::kEnds) continue;
          write(left_, first + i, first, size, z.LeftRow(static_cast<int>(row)), lane);
        }
      });
  return static_cast<int>(SumOfLanes(failed));
}

void BidiagonalSvd::RotateVectors(Halves halves, int64_t i, int64_t j, R cosine, R sine) {
  const int64_t first = halves.first;
  if (kept_ == Kept::kEnds) {
    for (int end = 0; end < 2; ++end) {
      RotatePair(right_.z.At(end, first + i).data, right_.z.At(end, first + j).data, 1, cosine,
                 sine);
    }
    return;
  }
  for (const Side& side : {left_, right_}) {
    const Columns columns = ColumnsOf(side, halves);
    RotatePair(side.z.At(first + i, columns.first).data, side.z.At(first + j, columns.first).data,
               columns.count(), cosine, sine);
  }
}

// Each half has a right vector that it maps to zero. Rotates these two vectors. The result in row
// `upper` couples with the row between the halves (alpha, beta); the result in the last row does
// not. Returns the weight of the first.
double BidiagonalSvd::Couple(Halves halves, R alpha, R beta) {
  const int64_t first = halves.first, upper = first + halves.upper;
  const int64_t last = first + halves.size();
  const R x = alpha * *Inner(halves, upper, true), y = beta * *Inner(halves, last, false);
  const auto [norm, cosine, sine] = WeightRotation<R>(x, y);
  if (kept_ != Kept::kEnds) {
    const Columns columns = ColumnsOf(right_, halves);
    R* const row = right_.z.At(upper, columns.first).data;
    R* const other = right_.z.At(last, columns.first).data;
    for (int64_t j = 0; j < columns.upper; ++j) {
      other[j] = -sine * row[j];
      row[j] *= cosine;
    }
    for (int64_t j = columns.lower_begin(); j < columns.count(); ++j) {
      row[j] = sine * other[j];
      other[j] *= cosine;
    }
  } else {
    R *const firsts = right_.z.At(0, 0).data, *const lasts = right_.z.At(1, 0).data;
    const R first_element = firsts[upper], last_element = lasts[last];
    firsts[upper] = cosine * first_element;
    lasts[upper] = sine * last_element;
    firsts[last] = -sine * first_element;
    lasts[last] = cosine * last_element;
  }
  return norm;
}

// Sets the weights, which are the full row. They are alpha times the last elements of the upper
// half's right vectors, and beta times the first elements of the lower half's. `own` is the weight
// of the vector from Couple. Writes zeros beyond the halves.
void BidiagonalSvd::SetWeights(Halves halves, R alpha, R beta, R own) {
  const int64_t first = halves.first, upper = halves.upper, size = halves.size();
  for (int64_t i = 0; i < size; ++i) {
    if (i == upper) continue;
    const bool is_upper = i < upper;
    R* const inner = Inner(halves, first + i, is_upper);
    merge_.SetWeight(i, (is_upper ? alpha : beta) * *inner, is_upper ? Half::kUpper : Half::kLower);
    if (kept_ == Kept::kEnds) {
      *inner = 0;
      continue;
    }
    for (const Side& side : {left_, right_}) {
      const Columns columns = ColumnsOf(side, halves);
      R* const row = side.z.At(first + i, columns.first).data;
      if (is_upper) {
        std::fill(row + columns.upper, row + columns.count(), R(0));
      } else {
        std::fill_n(row, columns.lower_begin(), R(0));
      }
    }
  }
  merge_.SetWeight(upper, own, Half::kBoth);
  if (kept_ == Kept::kEnds) return;
  const Columns columns = ColumnsOf(left_, halves);
  std::fill_n(left_.z.At(first + upper, columns.first).data, columns.count(), R(0));
}

// Makes the left vectors of the secular equation from the right ones, of the roots [begin, end).
// The first is column 0 of the update. A left vector has -1 for the full row, and elsewhere the
// pole times the right vector's element.
void BidiagonalSvd::MakeLeftVectors(int64_t begin, int64_t end, const RunTasks& run_tasks) {
  const int64_t count = merge_.kept_count();
  const R* const poles = merge_.poles();
  const auto make = [&](int64_t j) {
    const V own = -Load<R>(merge_.inverse_norms() + begin + j);
    V sum = own * own;
    for (int64_t i = 1; i < count; ++i) {
      R* const x = merge_.UpdateRow(i).At(0, j).data;
      const V product = Widen<V>(poles[i]) * Load<R>(x);
      sum = MulAdd(product, product, sum);
      Store<R>(product, x);
    }
    Store<R>(own, merge_.UpdateRow(0).At(0, j).data);
    const V inverse = Number<V>(1) / Sqrt(sum);
    for (int64_t i = 0; i < count; ++i) {
      R* const x = merge_.UpdateRow(i).At(0, j).data;
      Store<R>(inverse * Load<R>(x), x);
    }
  };
  ForEachPieceOfColumns<R>(run_tasks, 0, end - begin, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; j += kWidth<R>) make(j);
  });
  std::copy_n(merge_.UpdateRow(0).data, end - begin, between_.get() + begin);
}

// Replaces one side's vectors of both halves by those of the merged matrix.
void BidiagonalSvd::WriteVectors(const Side& side, Halves halves, const RunTasks& run_tasks) {
  const Chosen wanted = halves.size() == n_ ? chosen_ : Chosen{0, halves.size()};
  const Columns columns = ColumnsOf(side, halves);
  const Rows<R> z = side.z.At(halves.first, columns.first);
  merge_.WriteVectors(columns.upper, columns.lower, columns.lower_begin(), wanted, z, run_tasks,
                      [&](int64_t begin, int64_t end) {
                        merge_.MakeColumns<SquaredPoles>(begin, end, run_tasks);
                        if (side.more == 0) MakeLeftVectors(begin, end, run_tasks);
                      });
  if (side.more > 0 || columns.between == 0) return;
  // Left vectors: the row between the halves is a unit vector of its own.
  for (int64_t i = wanted.start; i < wanted.start + wanted.count; ++i) {
    const int64_t source = merge_.source(i);
    *z.At(i, columns.upper).data = source < merge_.kept_count() ? -between_[source] : R(0);
  }
}

// Merges the singular values and vectors of two halves and the row between them.
int BidiagonalSvd::Merge(Halves halves, R* d, const R* e, const RunTasks& run_tasks) {
  const int64_t upper = halves.upper, size = halves.size();
  const R alpha = d[upper], beta = e[upper];
  d[upper] = 0;
  R largest = std::max(std::abs(alpha), std::abs(beta));
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, d[i]);
  const R negligible = NegligibleIn(largest);
  const R own = Couple(halves, alpha, beta);
  SetWeights(halves, alpha, beta, std::max(own, negligible));
  merge_.Deflate(halves, 1, negligible, d,
                 [&](auto... arguments) { RotateVectors(halves, arguments...); });
  int failed = 0;
  if (merge_.kept_count() == 1) {
    merge_.SetOnly(own, -1);
  } else {
    R unscale;
    const R scale = PowerOfTwoScale(largest, unscale);
    merge_.SetSecular(scale, scale, d);
    // The first pole is zero, and the next one must differ from it.
    merge_.poles()[1] = std::max(merge_.poles()[1], scale * negligible / 2);
    failed = merge_.FindVectors<SquaredPoles>(1, unscale, run_tasks);
  }
  merge_.WriteValues(d);
  if (kept_ != Kept::kEnds) {
    WriteVectors(right_, halves, run_tasks);
    if (kept_ == Kept::kAll) MakeLeftVectors(0, merge_.kept_count(), run_tasks);
    WriteVectors(left_, halves, run_tasks);
  } else {
    for (int end = 0; end < 2; ++end) {
      merge_.WriteElements(right_.z.At(end, halves.first).data);
    }
  }
  return failed;
}

int BidiagonalSvd::Solve(R* d, R* e, const RunTasks& run_tasks) {
  e[n_ - 1] = 0;
  int failed = SolveLeaves(d, e);
  leaves_.ForEachMerge([&](Halves halves) {
    failed += Merge(halves, d + halves.first, e + halves.first, run_tasks);
  });
  return failed;
}

}  // namespace linalg::blocked
