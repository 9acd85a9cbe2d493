#include "kernels/blocked/divide_and_conquer.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/secular.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/triangular.h"
#include "kernels/small/eigh.h"

namespace linalg::blocked {
namespace {

// Up to this order QL solves a leaf: it takes as long there as two leaves and their merge.
inline constexpr int64_t kMostLeaf = 16;

inline int64_t LeafCount(int64_t n) {
  int64_t leaves = 1;
  while ((n + leaves - 1) / leaves > kMostLeaf) leaves *= 2;
  return leaves;
}

}  // namespace

template <class R>
DivideAndConquer<R>::DivideAndConquer(int64_t n, bool vectors)
    : n_(n),
      leaves_(LeafCount(n)),
      vectors_(vectors),
      // The lower halves begin at a register.
      memory_(2 * ((vectors ? n : 2) + kTileRows) + 2 * (n + kTileRows) + 4, n + kWidth<R>),
      leaf_(new V[(kMostLeaf + 2 + 2 * small::kPendingSweeps<V>)*kMostLeaf]),
      order_(new int32_t[n]),
      kept_(new int32_t[n]),
      deflated_(new int32_t[n]),
      place_(new int32_t[n]),
      half_(new Half[n]) {
  Rows<R> rows = memory_.rows();
  // Tiles reach beyond what they are of.
  const auto take = [&](int64_t count) {
    return std::exchange(rows, rows.At(count + kTileRows, 0));
  };
  z_ = take(vectors ? n : 2);
  gathered_ = take(vectors ? n : 2);
  products_ = take(n);
  update_ = take(n);
  R** const lists[] = {&weights_, &poles_, &roots_, &sorted_};
  for (int i = 0; i < 4; ++i) *lists[i] = rows.At(i, 0).data;
}

template <class R>
int DivideAndConquer<R>::SolveLeaves(R* d, const R* e) {
  constexpr int kLanes = kLanesOf<V>;
  const int order = static_cast<int>((n_ + leaves_ - 1) / leaves_);
  V* const diagonal = leaf_.get();
  V *const beside = diagonal + kMostLeaf, *const z = beside + kMostLeaf;
  V *const sine = z + kMostLeaf * kMostLeaf, *const shear = sine + small::kPendingSweeps<V> * order;
  V failed{};
  for (int64_t leaf = 0; leaf < leaves_; leaf += kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes, leaves_ - leaf));
    std::fill_n(diagonal, order, V{});
    std::fill_n(beside, order, V{});
    for (int lane = 0; lane < count; ++lane) {
      const int64_t first = LeafStart(leaf + lane), size = LeafStart(leaf + lane + 1) - first;
      for (int64_t i = 0; i < size; ++i) {
        diagonal[i][lane] = d[first + i];
        if (i < size - 1) beside[i][lane] = e[first + i];
      }
    }
    failed = failed + small::ImplicitQl<true, V>(diagonal, beside, order, z, order, sine, shear);
    for (int lane = 0; lane < count; ++lane) {
      const int64_t first = LeafStart(leaf + lane), size = LeafStart(leaf + lane + 1) - first;
      int32_t* const sorted = order_.get();
      std::iota(sorted, sorted + size, 0);
      std::sort(sorted, sorted + size,
                [&](int i, int j) { return diagonal[i][lane] < diagonal[j][lane]; });
      for (int64_t i = 0; i < size; ++i) {
        d[first + i] = diagonal[sorted[i]][lane];
        const V* const vector = z + sorted[i] * order;
        if (vectors_) {
          R* const row = z_.At(first + i, first).data;
          for (int64_t j = 0; j < size; ++j) row[j] = vector[j][lane];
        } else {
          *z_.At(0, first + i).data = vector[0][lane];
          *z_.At(1, first + i).data = vector[size - 1][lane];
        }
      }
    }
  }
  return static_cast<int>(Reduce(failed, [](auto a, auto b) { return a + b; }));
}

// Rotates eigenvector i with j.
template <class R>
void DivideAndConquer<R>::RotateRows(Halves halves, int64_t i, int64_t j, R cosine, R sine) {
  const auto rotate = [&](R& x, R& y) {
    const R rotated = MulAdd(cosine, x, sine * y);
    y = MulAdd(cosine, y, -(sine * x));
    x = rotated;
  };
  const Rows<R> z = z_;
  const int64_t first = halves.first;
  if (vectors_) {
    R *const x = z.At(first + i, first).data, *const y = z.At(first + j, first).data;
    for (int64_t k = 0; k < halves.size(); ++k) rotate(x[k], y[k]);
  } else {
    for (int k = 0; k < 2; ++k) rotate(*z.At(k, first + i).data, *z.At(k, first + j).data);
  }
}

// The weights of the rank-one update that couples two halves, each of norm √½: the last elements of
// the upper half's eigenvectors, and the first of the lower's. Writes zeros beyond the halves.
template <class R>
void DivideAndConquer<R>::ReadWeights(Halves halves, R sign) {
  const int64_t upper = halves.upper, size = halves.size();
  const R root = std::sqrt(R(0.5));
  for (int64_t i = 0; i < size; ++i) {
    const bool is_upper = i < upper;
    const Rows<R> row =
        vectors_ ? z_.At(halves.first + i, halves.first) : z_.At(0, halves.first + i);
    half_[i] = is_upper ? kUpper : kLower;
    if (vectors_) {
      weights_[i] = is_upper ? root * row.data[upper - 1] : sign * root * row.data[upper];
      if (is_upper) {
        std::fill(row.data + upper, row.data + size, R(0));
      } else {
        std::fill_n(row.data, upper, R(0));
      }
    } else {
      R& inner = *row.At(is_upper, 0).data;
      weights_[i] = (is_upper ? root : sign * root) * inner;
      inner = 0;
    }
  }
}

// Finds what of the diagonal of both halves the rank-one update by `rho` times the weights changes;
// returns how much of it. Rotates eigenvectors of eigenvalues that are nearly the same, so that it
// changes but one of them. As LAPACK's laed2.
template <class R>
int64_t DivideAndConquer<R>::Deflate(Halves halves, R rho, R* d) {
  const int64_t upper = halves.upper, size = halves.size();
  R* const weights = weights_;
  int32_t *const order = order_.get(), *const kept = kept_.get();
  std::iota(order, order + size, 0);
  std::inplace_merge(order, order + upper, order + size,
                     [&](int32_t i, int32_t j) { return d[i] < d[j]; });
  const R largest = std::max({std::abs(d[order[0]]), std::abs(d[order[size - 1]]), rho});
  const R negligible = 8 * (std::numeric_limits<R>::epsilon() / 2) * largest;
  int64_t count = 0, deflated = 0;
  int32_t before = -1;
  for (int64_t k = 0; k < size; ++k) {
    const int32_t i = order[k];
    if (rho * std::abs(weights[i]) <= negligible) {
      deflated_[deflated++] = i;
      continue;
    }
    if (before >= 0) {
      const R norm = std::hypot(weights[i], weights[before]);
      const R cosine = weights[i] / norm, sine = -weights[before] / norm;
      if (std::abs((d[i] - d[before]) * cosine * sine) <= negligible) {
        RotateRows(halves, before, i, cosine, sine);
        const R low = d[before], high = d[i];
        d[before] = low * cosine * cosine + high * sine * sine;
        d[i] = low * sine * sine + high * cosine * cosine;
        weights[i] = norm;
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

// The eigenvectors of the rank-one update, in columns, a row for each pole at its place.
template <class R>
void DivideAndConquer<R>::MakeRankOneVectors(int64_t count) {
  const Rows<R> differences = products_, update = update_;
  for (int64_t j = 0; j < count; j += kWidth<R>) {
    V sum{};
    for (int64_t i = 0; i < count; ++i) {
      R* const x = differences.At(i, j).data;
      const V ratio = Spread<V>(weights_[i]) / Load<R>(x);
      sum = MulAdd(ratio, ratio, sum);
      Store<R>(ratio, x);
    }
    const V inverse = Number<V>(1) / Sqrt(sum);
    for (int64_t i = 0; i < count; ++i) {
      Store<R>(inverse * Load<R>(differences.At(i, j).data), update.At(place_[i], j).data);
    }
  }
}

// The eigenvectors of both halves together, where the diagonal's elements are kept; the others
// follow. Their signs are of no account.
template <class R>
void DivideAndConquer<R>::MultiplyVectors(Halves halves, int64_t count) {
  const int64_t first = halves.first, upper = halves.upper, size = halves.size();
  const int64_t deflated = size - count;
  const Strided<R> update = update_.ReadTransposed();
  const Rows<R> z = z_, gathered = gathered_, products = products_;
  if (!vectors_) {
    for (int end = 0; end < 2; ++end) {
      R *const from = gathered.At(end, 0).data, *const row = z.At(end, first).data;
      for (int64_t i = 0; i < count; ++i) from[place_[i]] = row[kept_[i]];
      for (int64_t i = 0; i < deflated; ++i) from[count + i] = row[deflated_[i]];
      for (int64_t j = 0; j < count; j += kWidth<R>) {
        V sum{};
        for (int64_t i = 0; i < count; ++i) {
          sum = MulAdd(Spread<V>(from[i]), Load<R>(update_.At(i, j).data), sum);
        }
        Store<R>(sum, products.At(end, j).data);
      }
    }
    return;
  }
  const int64_t second = RoundUp(upper, kWidth<R>);
  const auto gather = [&](int64_t i, int64_t target) {
    const R* const row = z.At(first + i, first).data;
    std::copy_n(row, upper, gathered.At(target, 0).data);
    std::copy_n(row + upper, halves.lower, gathered.At(target, second).data);
  };
  for (int64_t i = 0; i < count; ++i) gather(kept_[i], place_[i]);
  for (int64_t i = 0; i < deflated; ++i) gather(deflated_[i], count + i);
  const auto multiply = [&](int64_t from, int64_t depth, int64_t column, int64_t cols) {
    ForEachGroupOfColumns<R>(
        column, column + cols, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
          MulSubColumns<false, kCols, true>(count, depth, update.At(0, from), gathered.At(from, j),
                                            products.At(0, j));
        });
  };
  multiply(0, upper_count_ + both_count_, 0, upper);
  multiply(upper_count_, count - upper_count_, second, halves.lower);
}

// Makes the eigenvalues and eigenvectors of two halves, which `beside` couples, those of the whole.
template <class R>
int DivideAndConquer<R>::Merge(Halves halves, R beside, R* d) {
  const int64_t first = halves.first, upper = halves.upper, size = halves.size();
  const Rows<R> z = z_;
  ReadWeights(halves, beside < 0 ? R(-1) : R(1));
  const R rho = 2 * std::abs(beside);
  const int64_t count = Deflate(halves, rho, d), deflated = size - count;
  int failed = 0;
  if (count == 1) {
    roots_[0] = MulAdd(rho * weights_[kept_[0]], weights_[kept_[0]], d[kept_[0]]);
    *update_.data = 1;
  } else if (count > 1) {
    R unscale;
    R largest = rho;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(d[kept_[i]]));
    const R scale = PowerOfTwoScale(largest, unscale);
    for (int64_t i = 0; i < count; ++i) {
      poles_[i] = scale * d[kept_[i]];
      sorted_[i] = weights_[kept_[i]];
    }
    std::copy_n(sorted_, count, weights_);
    failed = FindRoots<PlainPoles>(count, scale * rho, poles_, weights_, roots_, products_);
    for (int64_t i = 0; i < count; ++i) roots_[i] *= unscale;
    RecomputeWeights<PlainPoles>(count, poles_, products_, weights_);
    MakeRankOneVectors(count);
  }
  MultiplyVectors(halves, count);
  // Both lists are in order.
  int64_t root = 0, other = 0;
  for (int64_t i = 0; i < size; ++i) {
    const bool is_root = other == deflated || (root < count && roots_[root] <= d[deflated_[other]]);
    sorted_[i] = is_root ? roots_[root] : d[deflated_[other]];
    const int64_t row = is_root ? root++ : count + other++;
    const Rows<R> source = is_root ? products_ : gathered_;
    if (vectors_) {
      R* const target = z.At(first + i, first).data;
      std::copy_n(source.At(row, 0).data, upper, target);
      std::copy_n(source.At(row, RoundUp(upper, kWidth<R>)).data, halves.lower, target + upper);
    } else {
      for (int end = 0; end < 2; ++end) *z.At(end, first + i).data = *source.At(end, row).data;
    }
  }
  std::copy_n(sorted_, size, d);
  return failed;
}

template <class R>
int DivideAndConquer<R>::Solve(R* d, const R* e) {
  for (int64_t leaf = 1; leaf < leaves_; ++leaf) {
    const int64_t first = LeafStart(leaf);
    const R size = std::abs(e[first - 1]);
    d[first - 1] -= size;
    d[first] -= size;
  }
  int failed = SolveLeaves(d, e);
  for (int64_t step = 1; step < leaves_; step *= 2) {
    for (int64_t leaf = 0; leaf < leaves_; leaf += 2 * step) {
      const int64_t first = LeafStart(leaf), middle = LeafStart(leaf + step);
      const int64_t last = LeafStart(leaf + 2 * step);
      failed += Merge({first, middle - first, last - middle}, e[middle - 1], d + first);
    }
  }
  return failed;
}

template class DivideAndConquer<float>;
template class DivideAndConquer<double>;

}  // namespace linalg::blocked
