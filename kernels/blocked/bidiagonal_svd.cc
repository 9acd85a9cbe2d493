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

}  // namespace

BidiagonalSvd::BidiagonalSvd(int64_t n, bool vectors, Chosen chosen)
    : n_(n),
      leaves_(n, kMostLeaf, /*between=*/1),
      vectors_(vectors),
      chosen_(chosen),
      // The lower half's rows begin at a register boundary.
      memory_(RowArena<R>::RowCount(vectors ? n : 0) + RowArena<R>::RowCount(vectors ? n + 1 : 2) +
                  HalvesMerge<R>::RowCount(n, vectors ? n : 1),
              n + 1 + kWidth<R>),
      rows_(memory_.rows()),
      left_{rows_.Take(vectors ? n : 0), 0},
      right_{rows_.Take(vectors ? n + 1 : 2), 1},
      merge_(n, vectors ? n : 1, rows_),
      leaf_(new V[(kMostLeaf + 1) * (kMostLeaf + 1) + kMostLeaf * (kMostLeaf + 2)]) {}

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
  leaves_.ForEachRegister(d, e, diagonal, beside, solve,
                          [&](int lane, int64_t first, int64_t size) {
                            const auto sorted = SortLane<kMostLeaf>(diagonal, lane, size);
                            for (int64_t i = 0; i <= size; ++i) {
                              const int64_t row = i < size ? sorted[i] : size;
                              const V* const right_vector = z.RightRow(static_cast<int>(row));
                              if (!vectors_) {
                                *Element(first + i, first, false) = right_vector[0][lane];
                                *Element(first + i, first + size, true) = right_vector[size][lane];
                              } else {
                                R* const target = right_.z.At(first + i, first).data;
                                for (int64_t j = 0; j <= size; ++j)
                                  target[j] = right_vector[j][lane];
                              }
                              if (i == size) break;
                              d[first + i] = diagonal[row][lane];
                              if (!vectors_) continue;
                              const V* const left_vector = z.LeftRow(static_cast<int>(row));
                              R* const target = left_.z.At(first + i, first).data;
                              for (int64_t j = 0; j < size; ++j) target[j] = left_vector[j][lane];
                            }
                          });
  return static_cast<int>(SumOfLanes(failed));
}

void BidiagonalSvd::RotateVectors(Halves halves, int64_t i, int64_t j, R cosine, R sine) {
  const int64_t first = halves.first;
  if (!vectors_) {
    for (const bool last : {false, true}) {
      RotatePair(Element(first + i, first, last), Element(first + j, first, last), 1, cosine, sine);
    }
    return;
  }
  for (const Side& side : {left_, right_}) {
    RotatePair(side.z.At(first + i, first).data, side.z.At(first + j, first).data,
               halves.size() + side.more, cosine, sine);
  }
}

// Each half has a right vector that it maps to zero. Rotates these two vectors. The result in row
// `upper` couples with the row between the halves (alpha, beta); the result in the last row does
// not. Returns the weight of the first.
double BidiagonalSvd::Couple(Halves halves, R alpha, R beta) {
  const int64_t first = halves.first, upper = first + halves.upper, lower = upper + 1;
  const int64_t last = first + halves.size();
  const R x = alpha * *Element(upper, upper, true), y = beta * *Element(last, lower, false);
  const auto [norm, cosine, sine] = WeightRotation<R>(x, y);
  if (vectors_) {
    R* const row = right_.z.At(upper, 0).data;
    R* const other = right_.z.At(last, 0).data;
    for (int64_t j = first; j <= upper; ++j) {
      other[j] = -sine * row[j];
      row[j] *= cosine;
    }
    for (int64_t j = lower; j <= last; ++j) {
      row[j] = sine * other[j];
      other[j] *= cosine;
    }
  } else {
    const R first_element = *Element(upper, first, false),
            last_element = *Element(last, last, true);
    *Element(upper, first, false) = cosine * first_element;
    *Element(upper, last, true) = sine * last_element;
    *Element(last, first, false) = -sine * first_element;
    *Element(last, last, true) = cosine * last_element;
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
    R* const inner = Element(first + i, first + upper + !is_upper, is_upper);
    merge_.SetWeight(i, (is_upper ? alpha : beta) * *inner, is_upper ? Half::kUpper : Half::kLower);
    if (!vectors_) {
      *inner = 0;
      continue;
    }
    for (const Side& side : {left_, right_}) {
      R* const row = side.z.At(first + i, first).data;
      if (is_upper) {
        std::fill(row + upper + side.more, row + size + side.more, R(0));
      } else {
        std::fill_n(row, upper + 1, R(0));
      }
    }
  }
  merge_.SetWeight(upper, own, Half::kBoth);
  if (vectors_) std::fill_n(left_.z.At(first + upper, first).data, size, R(0));
}

// Makes the left vectors of the secular equation from the right ones. A left vector has -1 for the
// full row, and elsewhere the pole times the right vector's element.
void BidiagonalSvd::MakeLeftVectors(const RunTasks& run_tasks) {
  const int64_t count = merge_.kept_count();
  const R* const poles = merge_.poles();
  const auto make = [&](int64_t j) {
    const V own = -Load<R>(merge_.inverse_norms() + j);
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
  ForEachPieceOfColumns<R>(run_tasks, 0, count, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; j += kWidth<R>) make(j);
  });
}

// Replaces one side's vectors of both halves by those of the merged matrix.
void BidiagonalSvd::WriteVectors(const Side& side, Halves halves, const RunTasks& run_tasks) {
  const int64_t first = halves.first, upper = halves.upper;
  const Chosen wanted = halves.size() == n_ ? chosen_ : Chosen{0, halves.size()};
  merge_.WriteVectors(upper + side.more, halves.lower + side.more, halves.lower_begin(), wanted,
                      side.z.At(first, first), run_tasks);
  if (side.more > 0) return;
  // Left vectors: the row between the halves is a unit vector of its own.
  const R* const row_between = merge_.UpdateRow(0).data;
  for (int64_t i = wanted.start; i < wanted.start + wanted.count; ++i) {
    const int64_t source = merge_.source(i);
    *side.z.At(first + i, first + upper).data =
        source < merge_.kept_count() ? -row_between[source] : R(0);
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
  if (vectors_) {
    WriteVectors(right_, halves, run_tasks);
    MakeLeftVectors(run_tasks);
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
