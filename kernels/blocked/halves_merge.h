// What two solved halves of a condensed matrix become one by, in divide and conquer of symmetric
// tridiagonal matrices as of bidiagonal ones: with the vectors of both halves the whole is a
// diagonal matrix that a vector of weights changes. Where it changes nothing, or hardly anything,
// the halves' values and vectors stay; the others are the roots of a secular equation, and products
// of the halves' vectors. Each vector lies in a row, so that whole rows are moved, rotated and
// multiplied.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>

#include "kernels/arithmetic/rotation.h"
#include "kernels/blocked/leaves.h"
#include "kernels/blocked/secular.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/triangular.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// What may count as zero in a matrix of this size.
template <class R>
R NegligibleIn(R size) {
  return 8 * (std::numeric_limits<R>::epsilon() / 2) * size;
}

// Makes two rows cosine x + sine y and cosine y - sine x.
template <class E, class R>
LINALG_INLINE void RotatePair(E* x, E* y, int64_t count, R cosine, R sine) {
  for (int64_t i = 0; i < count; ++i) Rotate(cosine, -sine, x[i], y[i]);
}

// The rotation that takes weights (x, y) to (norm, 0). Exact where one of them is zero, and its
// norm is not negative, which PlaneRotation's may be: singular values come of it. Of weights whose
// quotients by it underflow or overflow, which change nothing, none.
template <class R>
struct WeightRotation {
  R norm, cosine, sine;

  WeightRotation(R x, R y) : norm(std::hypot(x, y)) {
    const bool lost = norm < std::numeric_limits<R>::min();
    cosine = lost ? R(1) : x / norm;
    sine = lost ? R(0) : y / norm;
  }
};

// Which halves of a vector hold others than zeros.
enum class Half : int8_t { kUpper, kBoth, kLower };

// In memory that serves one merge after another.
template <class R>
class HalvesMerge {
  using V = Register<R>;

 public:
  // Of up to n values; `moved` rows at most are moved: those of the vectors, or just one. The
  // memory for rows, of n elements and a register, is the caller's, for one piece of it comes back
  // to a process sooner than many.
  HalvesMerge(int64_t n, int64_t moved, RowArena<R>& rows)
      : moved_(rows.Take(moved)),
        products_(rows.Take(n)),
        update_(rows.Take(n)),
        weights_(rows.TakeOne()),
        poles_(rows.TakeOne()),
        roots_(rows.TakeOne()),
        sorted_(rows.TakeOne()),
        inverse_norms_(rows.TakeOne()),
        order_(new int32_t[n]),
        kept_(new int32_t[n]),
        deflated_(new int32_t[n]),
        place_(new int32_t[n]),
        source_(new int32_t[n]),
        half_(new Half[n]) {}

  // The rows that it takes.
  static int64_t RowCount(int64_t n, int64_t moved) {
    return RowArena<R>::RowCount(moved) + 2 * RowArena<R>::RowCount(n) + 5;
  }

  void SetWeight(int64_t i, R weight, Half half) {
    weights_[i] = weight;
    half_[i] = half;
  }

  // Finds what of the diagonal d the weights change: all but what `scale` times its weight is
  // negligible of. Rotates the vectors of two that are nearly the same, by rotate(i, j, cosine,
  // sine), so that only one of them is changed. Both halves ascend; what is between them is always
  // kept, as the first. As LAPACK's laed2 and lasd2.
  template <class RotateVectors>
  void Deflate(Halves halves, R scale, R negligible, R* d, RotateVectors&& rotate) {
    int32_t *const order = order_.get(), *const lower = order + halves.upper;
    const int64_t count = halves.upper + halves.lower;
    std::iota(order, lower, 0);
    std::iota(lower, order + count, halves.lower_begin());
    std::inplace_merge(order, lower, order + count,
                       [&](int32_t i, int32_t j) { return d[i] < d[j]; });
    size_ = halves.size();
    kept_count_ = halves.between;
    if (halves.between > 0) kept_[0] = static_cast<int32_t>(halves.upper);
    int64_t deflated = 0;
    int32_t before = -1;
    for (int64_t k = 0; k < count; ++k) {
      const int32_t i = order[k];
      if (scale * std::abs(weights_[i]) <= negligible) {
        deflated_[deflated++] = i;
        continue;
      }
      if (before >= 0) {
        const WeightRotation<R> rotation(weights_[i], weights_[before]);
        const R cosine = rotation.cosine, sine = -rotation.sine;
        if (std::abs((d[i] - d[before]) * cosine * sine) <= negligible) {
          rotate(before, i, cosine, sine);
          const R low = d[before], high = d[i];
          d[before] = low * cosine * cosine + high * sine * sine;
          d[i] = low * sine * sine + high * cosine * cosine;
          weights_[i] = rotation.norm;
          if (half_[i] != half_[before]) half_[i] = Half::kBoth;
          deflated_[deflated++] = before;
        } else {
          kept_[kept_count_++] = before;
        }
      }
      before = i;
    }
    if (before >= 0) kept_[kept_count_++] = before;
    std::sort(deflated_.get(), deflated_.get() + deflated,
              [&](int32_t i, int32_t j) { return d[i] < d[j]; });
    SetPlaces();
  }

  // How many are kept, and which, in ascending order but for what is between the halves.
  int64_t kept_count() const { return kept_count_; }
  int64_t kept(int64_t i) const { return kept_[i]; }
  R weight(int64_t i) const { return weights_[kept_[i]]; }

  // Where one alone is kept: what it becomes, and its vector, one element.
  void SetOnly(R root, R vector) {
    *roots_ = root;
    *update_.data = vector;
    *inverse_norms_ = 1;
  }

  // Where more are: the poles and the weights of the secular equation, times powers of two.
  void SetSecular(R pole_scale, R weight_scale, const R* d) {
    for (int64_t i = 0; i < kept_count_; ++i) {
      poles_[i] = pole_scale * d[kept_[i]];
      sorted_[i] = weight_scale * weights_[kept_[i]];
    }
    std::copy_n(sorted_, kept_count_, weights_);
  }
  R* poles() const { return poles_; }

  // Solves it, with rho before its weights: the roots, times `unscale`, and their vectors, in
  // columns of the update, a row for each pole at its place. Returns how many did not converge.
  template <class Poles>
  int FindVectors(R rho, R unscale, const RunTasks& run_tasks) {
    // Where sources will be there is room meanwhile for a number of each piece.
    ForEachPieceOfColumns<R>(run_tasks, 0, kept_count_, [&](int64_t first, int64_t last) {
      source_[first] =
          FindRoots<Poles>(first, last, kept_count_, rho, poles_, weights_, roots_, products_);
    });
    int failed = 0;
    for (int64_t j = 0; j < kept_count_; j += kTaskColumns<R>) failed += source_[j];
    for (int64_t i = 0; i < kept_count_; ++i) roots_[i] *= unscale;
    ForEachPieceOfRows(run_tasks, kept_count_, [&](int64_t first, int64_t last) {
      RecomputeWeights<Poles>(first, last, kept_count_, poles_, products_, weights_);
    });
    ForEachPieceOfColumns<R>(run_tasks, 0, kept_count_,
                             [&](int64_t first, int64_t last) { MakeColumns(first, last); });
    return failed;
  }

  // The row of the update that belongs to pole i; and one over the norms of what its columns are
  // multiples of, each of which is weight over pole less root.
  Rows<R> UpdateRow(int64_t i) const { return update_.At(place_[i], 0); }
  Rows<R> update() const { return update_; }
  const R* inverse_norms() const { return inverse_norms_; }

  // Makes d the values of the whole, ascending.
  void WriteValues(R* d) {
    const int64_t count = kept_count_, deflated = size_ - count;
    int64_t root = 0, other = 0;
    for (int64_t i = 0; i < size_; ++i) {
      const bool is_root =
          other == deflated || (root < count && roots_[root] <= d[deflated_[other]]);
      sorted_[i] = is_root ? roots_[root] : d[deflated_[other]];
      source_[i] = static_cast<int32_t>(is_root ? root++ : count + other++);
    }
    std::copy_n(sorted_, size_, d);
  }
  // What value i is a root's number, or at least kept_count().
  int64_t source(int64_t i) const { return source_[i]; }

  // Makes the rows of z the vectors of the whole. Those of either half have `more` elements more
  // than it has rows. Their signs are of no account.
  void WriteVectors(Halves halves, int64_t more, Rows<R> z, const RunTasks& run_tasks) {
    const int64_t upper = halves.upper + more, lower = halves.lower + more;
    const int64_t lower_begin = halves.lower_begin(), second = RoundUp(upper, kWidth<R>);
    const auto take = [&](int64_t i, int64_t target) {
      const R* const row = z.At(i, 0).data;
      std::copy_n(row, upper, moved_.At(target, 0).data);
      std::copy_n(row + lower_begin, lower, moved_.At(target, second).data);
    };
    ForEachPieceOfRows(run_tasks, size_, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        i < kept_count_ ? take(kept_[i], place_[i]) : take(deflated_[i - kept_count_], i);
      }
    });
    const auto multiply = [&](int64_t from, int64_t depth, int64_t column, int64_t cols) {
      const auto piece = [&](int64_t first, int64_t last) {
        ForEachGroupOfColumns<R>(
            first, last, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
              MulSubColumns<false, kCols, true>(kept_count_, depth,
                                                update_.At(from, 0).Transposed(),
                                                moved_.At(from, j), products_.At(0, j));
            });
      };
      ForEachPieceOfColumns<R>(run_tasks, column, column + cols, piece);
    };
    multiply(0, upper_count_ + both_count_, 0, upper);
    multiply(upper_count_, kept_count_ - upper_count_, second, lower);
    ForEachPieceOfRows(run_tasks, size_, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const Rows<R> source = (source_[i] < kept_count_ ? products_ : moved_).At(source_[i], 0);
        R* const target = z.At(i, 0).data;
        std::copy_n(source.data, upper, target);
        std::copy_n(source.At(0, second).data, lower, target + lower_begin);
      }
    });
  }

  // The same of one element of each vector, in a row.
  void WriteElements(R* row) {
    R *const from = moved_.data, *const products = products_.data;
    for (int64_t i = 0; i < kept_count_; ++i) from[place_[i]] = row[kept_[i]];
    for (int64_t i = kept_count_; i < size_; ++i) from[i] = row[deflated_[i - kept_count_]];
    for (int64_t j = 0; j < kept_count_; j += kWidth<R>) {
      V sum{};
      for (int64_t i = 0; i < kept_count_; ++i) {
        sum = MulAdd(Widen<V>(from[i]), Load<R>(update_.At(i, j).data), sum);
      }
      Store<R>(sum, products + j);
    }
    for (int64_t i = 0; i < size_; ++i) {
      row[i] = (source_[i] < kept_count_ ? products : from)[source_[i]];
    }
  }

 private:
  // Columns of the update, given differences of poles and roots and the weights.
  void MakeColumns(int64_t first, int64_t last) {
    for (int64_t j = first; j < last; j += kWidth<R>) {
      V sum{};
      for (int64_t i = 0; i < kept_count_; ++i) {
        R* const x = products_.At(i, j).data;
        const V ratio = Widen<V>(weights_[i]) / Load<R>(x);
        sum = MulAdd(ratio, ratio, sum);
        Store<R>(ratio, x);
      }
      const V inverse = Number<V>(1) / Sqrt(sum);
      for (int64_t i = 0; i < kept_count_; ++i) {
        Store<R>(inverse * Load<R>(products_.At(i, j).data), UpdateRow(i).At(0, j).data);
      }
      Store<R>(inverse, inverse_norms_ + j);
    }
  }

  // Of what is kept, vectors of the upper half come first, then those of both.
  void SetPlaces() {
    const auto count = [&](Half half) {
      return std::count_if(kept_.get(), kept_.get() + kept_count_,
                           [&](int32_t i) { return half_[i] == half; });
    };
    upper_count_ = count(Half::kUpper);
    both_count_ = count(Half::kBoth);
    int32_t next[] = {0, static_cast<int32_t>(upper_count_),
                      static_cast<int32_t>(upper_count_ + both_count_)};
    for (int64_t i = 0; i < kept_count_; ++i) {
      place_[i] = next[static_cast<int>(half_[kept_[i]])]++;
    }
  }

  // The vectors that are kept, in their places, and the others; their products; the vectors of the
  // secular equation, in columns; and a number for each value.
  Rows<R> moved_, products_, update_;
  R *weights_, *poles_, *roots_, *sorted_, *inverse_norms_;
  // The order of the diagonal, what is kept of it and what deflates, ascending, the place of each
  // that is kept, and where each result comes from: a root, or kept_count() and more.
  std::unique_ptr<int32_t[]> order_, kept_, deflated_, place_, source_;
  std::unique_ptr<Half[]> half_;
  int64_t size_ = 0, kept_count_ = 0, upper_count_ = 0, both_count_ = 0;
};

}  // namespace linalg::blocked
