#include "kernels/blocked/divide_and_conquer.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/arithmetic/scale.h"
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

// The secular function 1/rho + Σ weight² / (pole - x), whose zeros are the eigenvalues of
// diag(poles) + rho weights weightsᵀ, at a register of points: its terms below and above each zero
// apart.
template <class R>
class Secular {
  using V = Register<R>;

 public:
  struct Value {
    V below{}, above{};              // sums of terms
    V below_slope{}, above_slope{};  // and of their derivatives
    V error{};                       // a bound of the rounding errors of the sums, in ε
  };

  Secular(int64_t count, R inverse_rho, const R* poles, const R* weights)
      : count_(count), inverse_rho_(inverse_rho), poles_(poles), weights_(weights) {}

  // At origin + tau: the terms up to that of pole `split`, between `first` and `last` in all lanes,
  // are those below.
  Value At(V origin, V tau, V split, int64_t first, int64_t last) const {
    Value f;
    const auto term = [&](int64_t i, auto&& add) {
      const V weight = Spread<V>(weights_[i]);
      add(weight, weight / ((Spread<V>(poles_[i]) - origin) - tau));
    };
    const auto add_below = [&](V weight, V ratio) {
      f.below = MulAdd(weight, ratio, f.below);
      f.below_slope = MulAdd(ratio, ratio, f.below_slope);
      f.error = f.error - f.below;
    };
    const auto add_above = [&](V weight, V ratio) {
      f.above = MulAdd(weight, ratio, f.above);
      f.above_slope = MulAdd(ratio, ratio, f.above_slope);
      f.error = f.error + f.above;
    };
    for (int64_t i = 0; i <= first; ++i) term(i, add_below);
    for (int64_t i = count_ - 1; i > last; --i) term(i, add_above);
    for (int64_t i = first + 1; i <= last; ++i) {
      const auto is_below = Number<V>(i) <= split;
      term(i, [&](V weight, V ratio) {
        add_below(weight, is_below ? ratio : V{});
        add_above(weight, is_below ? V{} : ratio);
      });
    }
    return f;
  }

  V Sum(const Value& f) const { return Spread<V>(inverse_rho_) + f.below + f.above; }
  V Bound(const Value& f, V tau) const {
    return f.error + Number<V>(8) * (f.above - f.below) + Spread<V>(2 * inverse_rho_) +
           Abs(tau) * (f.below_slope + f.above_slope);
  }

 private:
  int64_t count_;
  R inverse_rho_;
  const R *poles_, *weights_;
};

// The zero of c x² - a x + b that is between its poles, or beyond both where `last` says so.
template <class V>
LINALG_INLINE V RationalZero(V a, V b, V c, Mask<V> last) {
  const V two = Number<V>(2), size = Sqrt(Abs(MulAdd(a, a, Number<V>(-4) * b * c)));
  const V root = last ? -size : size;
  const auto cancels = last ? a < V{} : a > V{};
  return (cancels ? two * b : a - root) / (cancels ? a + root : two * c);
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

// The zeros of the secular function, and pole i less zero j in row i of `products_`. As LAPACK's
// laed4, but that what its steps leave of an interval is halved if need be.
template <class R>
int DivideAndConquer<R>::FindRoots(int64_t count, R rho) {
  constexpr int kLanes = kLanesOf<V>;
  constexpr int kMostSteps = 100, kTrustedSteps = 8;
  constexpr R kEps = std::numeric_limits<R>::epsilon() / 2;
  const V half = Number<V>(0.5);
  const Secular<R> secular(count, 1 / rho, poles_, weights_);
  R total = 0;
  for (int64_t i = 0; i < count; ++i) total = MulAdd(weights_[i], weights_[i], total);
  int failed = 0;
  for (int64_t j0 = 0; j0 < count; j0 += kLanes) {
    // Between the poles on either side; the last is above both.
    V split, left, right, left_weight, right_weight;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t i = std::min(j0 + lane, count - 2);
      split[lane] = static_cast<R>(i);
      left[lane] = poles_[i];
      right[lane] = poles_[i + 1];
      left_weight[lane] = weights_[i];
      right_weight[lane] = weights_[i + 1];
    }
    const auto last = RowNumbers<R>(j0 / kLanes) > Number<V>(count - 2);
    const int64_t first_split = std::min(j0, count - 2);
    const int64_t last_split = std::min(j0 + kLanes - 1, count - 2);
    const auto at = [&](V origin, V tau) {
      return secular.At(origin, tau, split, first_split, last_split);
    };
    const V gap = right - left, end = last ? Spread<V>(rho * total) : gap;
    V tau = half * end;
    auto f = at(last ? right : left, tau);
    V value = secular.Sum(f);
    const auto beyond = value < V{};
    const auto from_right = last | beyond;
    const V origin = from_right ? right : left;
    V low = beyond ? (last ? tau : -tau) : V{};
    V high = beyond ? (last ? end : V{}) : tau;
    // The zero with all other terms as they are at the middle.
    {
      const V left_square = left_weight * left_weight, right_square = right_weight * right_weight;
      const V to_left = last ? -gap - tau : -tau, to_right = last ? -tau : gap - tau;
      const V c = value - left_square / to_left - right_square / to_right;
      const V a = MulAdd(c, from_right ? -gap : gap, left_square + right_square);
      const V b = from_right ? -(right_square * gap) : left_square * gap;
      const V zero = RationalZero(a, b, c, last);
      tau = (zero > low) & (zero < high) ? zero : half * (low + high);
    }
    auto open = Number<V>(0) == Number<V>(0);
    for (int step = 0;; ++step) {
      f = at(origin, tau);
      value = secular.Sum(f);
      open = open & ~(Abs(value) <= Number<V>(kEps) * secular.Bound(f, tau));
      if (!Any(open)) break;
      if (step == kMostSteps) {
        for (int lane = 0; lane < kLanes; ++lane) failed += open[lane] != 0;
        break;
      }
      low = open & (value < V{}) ? tau : low;
      high = open & (value >= V{}) ? tau : high;
      const V slope = f.below_slope + f.above_slope;
      const V to_left = (left - origin) - tau, to_right = (right - origin) - tau;
      const V near = from_right ? right_weight / to_right : left_weight / to_left;
      const V weighted = MulAdd(from_right ? -gap : gap, near * near,
                                MulAdd(from_right ? -to_left : -to_right, slope, value));
      const V middle = Abs(value - to_left * f.below_slope - to_right * f.above_slope);
      const V c = last ? middle : weighted;
      const V a = MulAdd(to_left + to_right, value, -(to_left * to_right * slope));
      V change = RationalZero(a, to_left * to_right * value, c, last);
      change = value * change < V{} ? change : -value / slope;
      V next = tau + change;
      if (step >= kTrustedSteps && step % 2 == 0) next = half * (low + high);
      next = (next > low) & (next < high) ? next : half * (low + high);
      // Nothing is left between the ends.
      open = open & (next != tau) & (next != low) & (next != high);
      tau = open ? next : tau;
      if (!Any(open)) break;
    }
    StoreUnaligned(origin + tau, roots_ + j0);
    for (int64_t i = 0; i < count; ++i) {
      Store<R>((Spread<V>(poles_[i]) - origin) - tau, products_.At(i, j0).data);
    }
  }
  return failed;
}

// The weights for which the zeros that were found are exact (Löwner's formula).
template <class R>
void DivideAndConquer<R>::RecomputeWeights(int64_t count) {
  constexpr int kLanes = kLanesOf<V>;
  const V one = Number<V>(1);
  const int64_t tail = count / kLanes * kLanes;
  const auto exists = RowNumbers<R>(tail / kLanes) < Number<V>(count);
  for (int64_t i = 0; i < count; ++i) {
    const R* const row = products_.At(i, 0).data;
    const auto ratio = [&](int64_t j) {
      const V difference = Spread<V>(poles_[i]) - LoadUnaligned<V>(poles_ + j);
      return Load<R>(row + j) / (difference == V{} ? -one : difference);
    };
    V product = one;
    for (int64_t j = 0; j < tail; j += kLanes) product = product * ratio(j);
    if (tail < count) product = product * (exists ? ratio(tail) : one);
    const R square = Reduce(product, [](auto a, auto b) { return a * b; });
    weights_[i] = std::copysign(std::sqrt(square), weights_[i]);
  }
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
    failed = FindRoots(count, scale * rho);
    for (int64_t i = 0; i < count; ++i) roots_[i] *= unscale;
    RecomputeWeights(count);
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
