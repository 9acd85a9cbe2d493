#include "kernels/blocked/bidiagonal_svd.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/secular.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/triangular.h"
#include "kernels/small/golub_kahan.h"

namespace linalg::blocked {
namespace {

// Up to this many rows QR solves a leaf.
inline constexpr int64_t kMostLeaf = 12;

inline int64_t LeafCount(int64_t n) {
  int64_t leaves = 1;
  while ((n + leaves) / leaves > kMostLeaf + 1) leaves *= 2;
  return leaves;
}

// The vectors of leaves, in rows, which rotations act on.
template <class V>
struct LeafVectors {
  V *right, *left;
  int rows;  // and one more from the right

  static LINALG_INLINE void Rotate(V* x, V* y, int count, V cosine, V sine) {
    for (int j = 0; j < count; ++j) {
      const V rotated = MulAdd(cosine, x[j], sine * y[j]);
      y[j] = MulAdd(cosine, y[j], -(sine * x[j]));
      x[j] = rotated;
    }
  }
  V* RightRow(int i) const { return right + i * (rows + 1); }
  V* LeftRow(int i) const { return left + i * rows; }
  LINALG_INLINE void RotateRight(int i, int j, V cosine, V sine) const {
    Rotate(RightRow(i), RightRow(j), rows + 1, cosine, sine);
  }
  LINALG_INLINE void Right(int i, V cosine, V sine) const { RotateRight(i, i + 1, cosine, sine); }
  LINALG_INLINE void Left(int i, V cosine, V sine) const {
    Rotate(LeftRow(i), LeftRow(i + 1), rows, cosine, sine);
  }
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
};

}  // namespace

BidiagonalSvd::BidiagonalSvd(int64_t n, bool vectors)
    : n_(n),
      leaves_(LeafCount(n)),
      vectors_(vectors),
      // The lower halves begin at a register.
      memory_(vectors ? 5 * (n + 1 + kTileRows) + 5 : 2 * (n + kTileRows) + 2 * (2 + kTileRows) + 5,
              n + 1 + kWidth<R>),
      leaf_(new V[(kMostLeaf + 1) * (kMostLeaf + 1) + kMostLeaf * (kMostLeaf + 2)]),
      order_(new int32_t[n]),
      kept_(new int32_t[n]),
      deflated_(new int32_t[n]),
      place_(new int32_t[n]),
      source_(new int32_t[n]),
      half_(new Half[n]) {
  Rows<R> rows = memory_.rows();
  // Tiles reach beyond what they are of.
  const auto take = [&](int64_t count) {
    return std::exchange(rows, rows.At(count + kTileRows, 0));
  };
  right_ = {take(vectors ? n + 1 : 2), 1};
  if (vectors) left_ = {take(n), 0};
  gathered_ = take(vectors ? n : 2);
  products_ = take(n);
  update_ = take(n);
  R** const lists[] = {&weights_, &poles_, &roots_, &sorted_, &inverse_norms_};
  for (int i = 0; i < 5; ++i) *lists[i] = rows.At(i, 0).data;
}

int BidiagonalSvd::SolveLeaves(R* d, const R* e) {
  constexpr int kLanes = kLanesOf<V>;
  const int order = static_cast<int>((n_ + leaves_) / leaves_) - 1;
  V* const diagonal = leaf_.get();
  V* const beside = diagonal + kMostLeaf;
  V* const right = beside + kMostLeaf;
  const LeafVectors<V> z{right, right + (kMostLeaf + 1) * (kMostLeaf + 1), order};
  const auto size_of = [&](int64_t leaf) { return LeafStart(leaf + 1) - LeafStart(leaf) - 1; };
  V failed{};
  for (int64_t leaf = 0; leaf < leaves_; leaf += kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes, leaves_ - leaf));
    // What a leaf has less than others are zeros, which nothing is rotated with.
    std::fill_n(diagonal, order, V{});
    std::fill_n(beside, order, V{});
    for (int lane = 0; lane < count; ++lane) {
      const int64_t first = LeafStart(leaf + lane), size = size_of(leaf + lane);
      for (int64_t i = 0; i < size; ++i) {
        diagonal[i][lane] = d[first + i];
        beside[i][lane] = e[first + i];
      }
    }
    z.SetIdentity();
    // The last column goes.
    V last = beside[order - 1];
    for (int i = order - 1; i >= 0 && Any(last != V{}); --i) {
      const small::PlaneRotation<V> rotation(diagonal[i], last);
      z.RotateRight(i, order, rotation.cosine, rotation.sine);
      diagonal[i] = rotation.r;
      if (i == 0) break;
      last = -rotation.sine * beside[i - 1];
      beside[i - 1] = rotation.cosine * beside[i - 1];
    }
    failed = failed + small::GolubKahan(diagonal, beside, order, z);
    for (int lane = 0; lane < count; ++lane) {
      const int64_t first = LeafStart(leaf + lane), size = size_of(leaf + lane);
      int32_t* const sorted = order_.get();
      std::iota(sorted, sorted + size, 0);
      std::sort(sorted, sorted + size,
                [&](int i, int j) { return diagonal[i][lane] < diagonal[j][lane]; });
      for (int64_t i = 0; i <= size; ++i) {
        const int64_t row = i < size ? sorted[i] : size;
        const V* const right_vector = z.RightRow(static_cast<int>(row));
        if (!vectors_) {
          *Element(first + i, first, false) = right_vector[0][lane];
          *Element(first + i, first + size, true) = right_vector[size][lane];
        } else {
          R* const target = right_.z.At(first + i, first).data;
          for (int64_t j = 0; j <= size; ++j) target[j] = right_vector[j][lane];
        }
        if (i == size) break;
        d[first + i] = diagonal[row][lane];
        if (!vectors_) continue;
        const V* const left_vector = z.LeftRow(static_cast<int>(row));
        R* const target = left_.z.At(first + i, first).data;
        for (int64_t j = 0; j < size; ++j) target[j] = left_vector[j][lane];
      }
    }
  }
  return static_cast<int>(Reduce(failed, [](auto a, auto b) { return a + b; }));
}

// Rotates the vectors of singular value i with those of j.
void BidiagonalSvd::RotateRows(Halves halves, int64_t i, int64_t j, R cosine, R sine) {
  const auto rotate = [&](R& x, R& y) {
    const R rotated = MulAdd(cosine, x, sine * y);
    y = MulAdd(cosine, y, -(sine * x));
    x = rotated;
  };
  const int64_t first = halves.first, size = halves.size();
  if (!vectors_) {
    for (const bool last : {false, true}) {
      rotate(*Element(first + i, first, last), *Element(first + j, first, last));
    }
    return;
  }
  for (const Side& side : {left_, right_}) {
    R* const x = side.z.At(first + i, first).data;
    R* const y = side.z.At(first + j, first).data;
    for (int64_t k = 0; k < size + side.more; ++k) rotate(x[k], y[k]);
  }
}

// Of the vectors that either half takes to zero, the one that the row between them, with the
// elements alpha and beta, does not, in that row's place, and the one that it does, in the last.
// Returns the weight of the first.
double BidiagonalSvd::Couple(Halves halves, R alpha, R beta) {
  const int64_t first = halves.first, upper = first + halves.upper, lower = upper + 1;
  const int64_t last = first + halves.size();
  const R x = alpha * *Element(upper, upper, true), y = beta * *Element(last, lower, false);
  const R norm = std::hypot(x, y);
  const bool lost = norm < SmallSquare<R>();
  const R cosine = lost ? R(1) : x / norm, sine = lost ? R(0) : y / norm;
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

// The full row, but for its element in the column of the vector that Couple has made: alpha and
// beta times the last elements of the upper half's vectors from the right and the first of the
// lower's. Writes zeros beyond the halves.
void BidiagonalSvd::ReadWeights(Halves halves, R alpha, R beta) {
  const int64_t first = halves.first, upper = halves.upper, size = halves.size();
  for (int64_t i = 0; i < size; ++i) {
    if (i == upper) continue;
    const bool is_upper = i < upper;
    half_[i] = is_upper ? kUpper : kLower;
    R* const inner = Element(first + i, first + upper + !is_upper, is_upper);
    weights_[i] = (is_upper ? alpha : beta) * *inner;
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
  half_[upper] = kBoth;
  if (vectors_) std::fill_n(left_.z.At(first + upper, first).data, size, R(0));
}

// Finds what of the diagonal of both halves the full row changes; returns how much of it. The
// zero in that row's place is the first of it. Rotates vectors of singular values that are nearly
// the same, so that it changes but one of them. As LAPACK's lasd2.
int64_t BidiagonalSvd::Deflate(Halves halves, R negligible, R* d) {
  const int64_t upper = halves.upper, size = halves.size();
  int32_t *const order = order_.get(), *const kept = kept_.get();
  std::iota(order, order + upper, 0);
  std::iota(order + upper, order + size - 1, upper + 1);
  std::inplace_merge(order, order + upper, order + size - 1,
                     [&](int32_t i, int32_t j) { return d[i] < d[j]; });
  kept[0] = static_cast<int32_t>(upper);
  int64_t count = 1, deflated = 0;
  int32_t before = -1;
  for (int64_t k = 0; k < size - 1; ++k) {
    const int32_t i = order[k];
    if (std::abs(weights_[i]) <= negligible) {
      deflated_[deflated++] = i;
      continue;
    }
    if (before >= 0) {
      const R norm = std::hypot(weights_[i], weights_[before]);
      const R cosine = weights_[i] / norm, sine = -weights_[before] / norm;
      if (std::abs((d[i] - d[before]) * cosine * sine) <= negligible) {
        RotateRows(halves, before, i, cosine, sine);
        const R low = d[before], high = d[i];
        d[before] = low * cosine * cosine + high * sine * sine;
        d[i] = low * sine * sine + high * cosine * cosine;
        weights_[i] = norm;
        if (half_[i] != half_[before]) half_[i] = kBoth;
        deflated_[deflated++] = before;
      } else {
        kept[count++] = before;
      }
    }
    before = i;
  }
  if (before >= 0) kept[count++] = before;
  std::sort(deflated_.get(), deflated_.get() + deflated,
            [&](int32_t i, int32_t j) { return d[i] < d[j]; });
  upper_count_ = std::count_if(kept, kept + count, [&](int i) { return half_[i] == kUpper; });
  both_count_ = std::count_if(kept, kept + count, [&](int i) { return half_[i] == kBoth; });
  int32_t next[] = {0, static_cast<int32_t>(upper_count_),
                    static_cast<int32_t>(upper_count_ + both_count_)};
  for (int64_t i = 0; i < count; ++i) place_[i] = next[half_[kept[i]]]++;
  return count;
}

// The vectors from the right of the diagonal matrix with a full row, in columns, a row for each
// pole at its place; and one over the norms of what they are multiples of.
void BidiagonalSvd::MakeRightVectors(int64_t count) {
  for (int64_t j = 0; j < count; j += kWidth<R>) {
    V sum{};
    for (int64_t i = 0; i < count; ++i) {
      R* const x = products_.At(i, j).data;
      const V ratio = Spread<V>(weights_[i]) / Load<R>(x);
      sum = MulAdd(ratio, ratio, sum);
      Store<R>(ratio, x);
    }
    const V inverse = Number<V>(1) / Sqrt(sum);
    for (int64_t i = 0; i < count; ++i) {
      Store<R>(inverse * Load<R>(products_.At(i, j).data), update_.At(place_[i], j).data);
    }
    Store<R>(inverse, inverse_norms_ + j);
  }
}

// Makes those from the left of them: poles times theirs, and -1 for the full row.
void BidiagonalSvd::MakeLeftVectors(int64_t count) {
  for (int64_t j = 0; j < count; j += kWidth<R>) {
    const V own = -Load<R>(inverse_norms_ + j);
    V sum = own * own;
    for (int64_t i = 1; i < count; ++i) {
      R* const x = update_.At(place_[i], j).data;
      const V product = Spread<V>(poles_[i]) * Load<R>(x);
      sum = MulAdd(product, product, sum);
      Store<R>(product, x);
    }
    Store<R>(own, update_.At(place_[0], j).data);
    const V inverse = Number<V>(1) / Sqrt(sum);
    for (int64_t i = 0; i < count; ++i) {
      R* const x = update_.At(i, j).data;
      Store<R>(inverse * Load<R>(x), x);
    }
  }
}

// The vectors of one side of both halves together, where the diagonal's elements are kept; the
// others follow. Their signs are of no account, but the same on both sides.
void BidiagonalSvd::MultiplyVectors(const Side& side, Halves halves, int64_t count) {
  const int64_t first = halves.first, upper = halves.upper + side.more;
  const int64_t lower = halves.lower + side.more, deflated = halves.size() - count;
  const Strided<R> update = update_.ReadTransposed();
  const int64_t second = RoundUp(upper, kWidth<R>);
  const auto gather = [&](int64_t i, int64_t target) {
    const R* const row = side.z.At(first + i, first).data;
    std::copy_n(row, upper, gathered_.At(target, 0).data);
    std::copy_n(row + halves.upper + 1, lower, gathered_.At(target, second).data);
  };
  for (int64_t i = 0; i < count; ++i) gather(kept_[i], place_[i]);
  for (int64_t i = 0; i < deflated; ++i) gather(deflated_[i], count + i);
  const auto multiply = [&](int64_t from, int64_t depth, int64_t column, int64_t cols) {
    ForEachGroupOfColumns<R>(
        column, column + cols, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
          MulSubColumns<false, kCols, true>(count, depth, update.At(0, from), gathered_.At(from, j),
                                            products_.At(0, j));
        });
  };
  multiply(0, upper_count_ + both_count_, 0, upper);
  multiply(upper_count_, count - upper_count_, second, lower);
}

// Where the vectors of both halves together come from, they go to.
void BidiagonalSvd::WriteVectors(const Side& side, Halves halves, int64_t count) {
  const int64_t first = halves.first, middle = halves.upper, upper = middle + side.more;
  const R* const row_between = update_.At(place_[0], 0).data;
  for (int64_t i = 0; i < halves.size(); ++i) {
    const bool is_root = source_[i] < count;
    const R* const source = (is_root ? products_ : gathered_).At(source_[i], 0).data;
    R* const target = side.z.At(first + i, first).data;
    if (side.more == 0) target[middle] = is_root ? -row_between[source_[i]] : R(0);
    std::copy_n(source, upper, target);
    std::copy_n(source + RoundUp(upper, kWidth<R>), halves.lower + side.more, target + middle + 1);
  }
}

// The same of the first and the last elements of those from the right.
void BidiagonalSvd::MultiplyEnds(Halves halves, int64_t count) {
  const int64_t size = halves.size();
  for (int end = 0; end < 2; ++end) {
    R *const from = gathered_.At(end, 0).data, *const row = right_.z.At(end, halves.first).data;
    R* const products = products_.At(end, 0).data;
    for (int64_t i = 0; i < count; ++i) from[place_[i]] = row[kept_[i]];
    for (int64_t i = count; i < size; ++i) from[i] = row[deflated_[i - count]];
    for (int64_t j = 0; j < count; j += kWidth<R>) {
      V sum{};
      for (int64_t i = 0; i < count; ++i) {
        sum = MulAdd(Spread<V>(from[i]), Load<R>(update_.At(i, j).data), sum);
      }
      Store<R>(sum, products + j);
    }
    for (int64_t i = 0; i < size; ++i) {
      row[i] = source_[i] < count ? products[source_[i]] : from[source_[i]];
    }
  }
}

// Makes the singular values and vectors of two halves, and of the row between them, those of the
// whole.
int BidiagonalSvd::Merge(Halves halves, R* d, const R* e) {
  const int64_t upper = halves.upper, size = halves.size();
  const R alpha = d[upper], beta = e[upper];
  d[upper] = 0;
  R largest = std::max(std::abs(alpha), std::abs(beta));
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, d[i]);
  const R negligible = 8 * (std::numeric_limits<R>::epsilon() / 2) * largest;
  const R own = Couple(halves, alpha, beta);
  ReadWeights(halves, alpha, beta);
  weights_[upper] = std::max(own, negligible);
  const int64_t count = Deflate(halves, negligible, d), deflated = size - count;
  int failed = 0;
  if (count == 1) {
    roots_[0] = own;
    *update_.data = -1;
    *inverse_norms_ = 1;
  } else {
    R unscale;
    const R scale = PowerOfTwoScale(largest, unscale);
    for (int64_t i = 0; i < count; ++i) {
      poles_[i] = scale * d[kept_[i]];
      sorted_[i] = scale * weights_[kept_[i]];
    }
    poles_[1] = std::max(poles_[1], scale * negligible / 2);
    std::copy_n(sorted_, count, weights_);
    failed = FindRoots<SquaredPoles>(count, R(1), poles_, weights_, roots_, products_);
    for (int64_t i = 0; i < count; ++i) roots_[i] *= unscale;
    RecomputeWeights<SquaredPoles>(count, poles_, products_, weights_);
    MakeRightVectors(count);
  }
  // Both lists are in order.
  int64_t root = 0, other = 0;
  for (int64_t i = 0; i < size; ++i) {
    const bool is_root = other == deflated || (root < count && roots_[root] <= d[deflated_[other]]);
    sorted_[i] = is_root ? roots_[root] : d[deflated_[other]];
    source_[i] = static_cast<int32_t>(is_root ? root++ : count + other++);
  }
  std::copy_n(sorted_, size, d);
  if (vectors_) {
    MultiplyVectors(right_, halves, count);
    WriteVectors(right_, halves, count);
    MakeLeftVectors(count);
    MultiplyVectors(left_, halves, count);
    WriteVectors(left_, halves, count);
  } else {
    MultiplyEnds(halves, count);
  }
  return failed;
}

int BidiagonalSvd::Solve(R* d, R* e) {
  e[n_ - 1] = 0;
  int failed = SolveLeaves(d, e);
  for (int64_t step = 1; step < leaves_; step *= 2) {
    for (int64_t leaf = 0; leaf < leaves_; leaf += 2 * step) {
      const int64_t first = LeafStart(leaf), middle = LeafStart(leaf + step);
      const int64_t last = LeafStart(leaf + 2 * step);
      failed += Merge({first, middle - 1 - first, last - middle - 1}, d + first, e + first);
    }
  }
  return failed;
}

}  // namespace linalg::blocked
