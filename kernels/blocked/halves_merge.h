// The merge step of divide and conquer, for symmetric tridiagonal and bidiagonal matrices.
//
// In the basis of both halves' vectors, the whole is a diagonal matrix modified by a vector of
// weights. Where a weight changes nothing, or almost nothing, the half's value and vector stay
// (deflation). The others are roots of a secular equation and products of the halves' vectors. Each
// vector lies in a row, so whole rows are moved, rotated and multiplied.
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

// The size that counts as zero in a matrix of this size.
template <class R>
R NegligibleIn(R size) {
  return 8 * (std::numeric_limits<R>::epsilon() / 2) * size;
}

// Rotates two rows to cosine x + sine y and cosine y - sine x.
template <class E, class R>
LINALG_INLINE void RotatePair(E* x, E* y, int64_t count, R cosine, R sine) {
  for (int64_t i = 0; i < count; ++i) Rotate(cosine, -sine, x[i], y[i]);
}

// The rotation that takes weights (x, y) to (norm, 0). It is exact if one weight is zero. Its norm
// is not negative, unlike PlaneRotation's, since singular values derive from it. Weights so small
// that their quotients leave the range change nothing, and get no rotation.
template <class R>
struct WeightRotation {
  R norm, cosine, sine;

  WeightRotation(R x, R y) : norm(std::hypot(x, y)) {
    const bool lost = norm < std::numeric_limits<R>::min();
    cosine = lost ? R(1) : x / norm;
    sine = lost ? R(0) : y / norm;
  }
};

// The halves of a vector that are not zero.
enum class Half : int8_t { kUpper, kBoth, kLower };

// The workspace serves one merge after another.
template <class R>
class HalvesMerge {
  using V = Register<R>;

 public:
  // The workspace is for up to n values. `moved` is the number of rows that are moved: all vectors,
  // or one. The caller provides the rows, of n elements and a register each: the system returns one
  // large block of memory sooner than many small ones.
  HalvesMerge(int64_t n, int64_t moved, RowArena<R>& rows)
      : HalvesMerge(n, n, Whole(n, moved, rows), rows) {}

  // The workspace for vectors of which some elements are kept. The update is made in blocks of
  // kBlock columns, so that no n by n matrix is stored. Rows of `kept` have the kept elements and a
  // register, rows of `blocks` have kBlock elements, and those of `rows` have n and a register.
  HalvesMerge(int64_t n, RowArena<R>& kept, RowArena<R>& blocks, RowArena<R>& rows)
      : HalvesMerge(n, kBlock, InBlocks(n, kept, blocks), rows) {}
  static constexpr int64_t kBlock = 4 * kTaskColumns<R>;

 private:
  struct Matrices {
    Rows<R> moved, products, ratios, update;
  };
  static Matrices Whole(int64_t n, int64_t moved, RowArena<R>& rows) {
    const Rows<R> moved_rows = rows.Take(moved), products = rows.Take(n);
    return {moved_rows, products, products, rows.Take(n)};
  }
  static Matrices InBlocks(int64_t n, RowArena<R>& kept, RowArena<R>& blocks) {
    const Rows<R> moved = kept.Take(n), ratios = blocks.Take(n);
    return {moved, kept.Take(kBlock), ratios, blocks.Take(n)};
  }

  HalvesMerge(int64_t n, int64_t block, Matrices matrices, RowArena<R>& rows)
      : block_(block),
        in_blocks_(block < n || matrices.ratios.data != matrices.products.data),
        moved_(matrices.moved),
        products_(matrices.products),
        ratios_(matrices.ratios),
        update_(matrices.update),
        weights_(rows.TakeOne()),
        poles_(rows.TakeOne()),
        roots_(rows.TakeOne()),
        origins_(rows.TakeOne()),
        taus_(rows.TakeOne()),
        sorted_(rows.TakeOne()),
        inverse_norms_(rows.TakeOne()),
        order_(new int32_t[n]),
        kept_(new int32_t[n]),
        deflated_(new int32_t[n]),
        place_(new int32_t[n]),
        source_(new int32_t[n]),
        half_(new Half[n]) {}

 public:
  // The single rows, and all rows, that the constructor takes.
  static constexpr int64_t kSingleRows = 7;
  static int64_t RowCount(int64_t n, int64_t moved) {
    return RowArena<R>::RowCount(moved) + 2 * RowArena<R>::RowCount(n) + kSingleRows;
  }

  void SetWeight(int64_t i, R weight, Half half) {
    weights_[i] = weight;
    half_[i] = half;
  }

  // Finds the elements of the diagonal d that the weights change. Elements whose weight times
  // `scale` is negligible deflate. If two elements are nearly equal, rotate(i, j, cosine, sine)
  // rotates their vectors so that one deflates. Both halves are in ascending order. The row between
  // them is always kept, as the first element (LAPACK's laed2 and lasd2).
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

  // The kept elements, in ascending order except for the row between the halves.
  int64_t kept_count() const { return kept_count_; }
  int64_t kept(int64_t i) const { return kept_[i]; }
  R weight(int64_t i) const { return weights_[kept_[i]]; }

  // The value and the vector of one element, if only one element is kept.
  void SetOnly(R root, R vector) {
    *roots_ = root;
    *update_.data = vector;
    *inverse_norms_ = 1;
  }

  // The poles and weights of the secular equation, scaled by powers of two, if several elements are
  // kept.
  void SetSecular(R pole_scale, R weight_scale, const R* d) {
    for (int64_t i = 0; i < kept_count_; ++i) {
      poles_[i] = pole_scale * d[kept_[i]];
      sorted_[i] = weight_scale * weights_[kept_[i]];
    }
    std::copy_n(sorted_, kept_count_, weights_);
  }
  R* poles() const { return poles_; }

  // Solves the secular equation, with factor rho for its weights. Computes the roots, times
  // `unscale`, and their vectors in columns of the update, with a row for each pole at its place.
  // Returns how many roots did not converge.
  template <class Poles>
  int FindVectors(R rho, R unscale, const RunTasks& run_tasks) {
    // Uses source_ to hold one count for each piece until the sources are known.
    ForEachPieceOfColumns<R>(run_tasks, 0, kept_count_, [&](int64_t first, int64_t last) {
      source_[first] = FindRoots<Poles>(first, last, kept_count_, rho, poles_, weights_, roots_,
                                        origins_, taus_);
    });
    int failed = 0;
    for (int64_t j = 0; j < kept_count_; j += kTaskColumns<R>) failed += source_[j];
    for (int64_t i = 0; i < kept_count_; ++i) roots_[i] *= unscale;
    ForEachPieceOfRows(run_tasks, kept_count_, [&](int64_t first, int64_t last) {
      RecomputeWeights<Poles>(first, last, kept_count_, poles_, origins_, taus_, weights_);
    });
    if (!in_blocks_) MakeColumns<Poles>(0, kept_count_, run_tasks);
    return failed;
  }

  // UpdateRow is the row of the update for pole i. The columns of the update are normalised: they
  // are multiples of weight / (pole - root), by `inverse_norms`.
  Rows<R> UpdateRow(int64_t i) const { return update_.At(place_[i], 0); }
  Rows<R> update() const { return update_; }
  const R* inverse_norms() const { return inverse_norms_; }

  // d = the values of the merged matrix, ascending.
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
  // The root's number for value i, or at least kept_count() for a deflated value.
  int64_t source(int64_t i) const { return source_[i]; }

  // Replaces the chosen rows of z by vectors of the merged matrix, and leaves the others undefined.
  // The upper half's vectors have `upper` elements, and the lower half's have `lower`, from column
  // `lower_begin`. Signs of vectors are arbitrary. If the update is made in blocks, make(begin,
  // end) makes its columns for these roots.
  template <class Make>
  void WriteVectors(int64_t upper, int64_t lower, int64_t lower_begin, Chosen chosen, Rows<R> z,
                    const RunTasks& run_tasks, Make&& make) {
    const int64_t second = RoundUp(upper, kWidth<R>);
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
    // The chosen roots are neighbours, because values ascend.
    const auto is_root = [&](int32_t source) { return source < kept_count_; };
    const int32_t* const chosen_begin = source_.get() + chosen.start;
    const int32_t* const chosen_end = chosen_begin + chosen.count;
    const int32_t* const root = std::find_if(chosen_begin, chosen_end, is_root);
    int64_t begin = root == chosen_end ? 0 : *root, end;
    const int64_t last_root = begin + std::count_if(chosen_begin, chosen_end, is_root);
    const auto multiply = [&](int64_t from, int64_t depth, int64_t column, int64_t cols) {
      if (begin == end) return;
      const auto piece = [&](int64_t first, int64_t last) {
        ForEachGroupOfColumns<R>(
            first, last, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
              MulSubColumns<false, kCols, true>(
                  end - begin, depth, update_.At(from, in_blocks_ ? 0 : begin).Transposed(),
                  moved_.At(from, j), products_.At(0, j));
            });
      };
      ForEachPieceOfColumns<R>(run_tasks, column, column + cols, piece);
    };
    // Writes the vectors of the block's roots. The last block has those that deflated, too.
    const auto write = [&](int64_t first, int64_t last) {
      for (int64_t i = chosen.start + first; i < chosen.start + last; ++i) {
        const int64_t number = source_[i];
        const bool is_new = is_root(source_[i]);
        if (is_new ? number < begin || number >= end : end < last_root) continue;
        const Rows<R> source = is_new ? products_.At(number - begin, 0) : moved_.At(number, 0);
        R* const target = z.At(i, 0).data;
        std::copy_n(source.data, upper, target);
        std::copy_n(source.At(0, second).data, lower, target + lower_begin);
      }
    };
    do {
      end = std::min(begin + block_, last_root);
      if (in_blocks_ && begin < end) make(begin, end);
      multiply(0, upper_count_ + both_count_, 0, upper);
      multiply(upper_count_, kept_count_ - upper_count_, second, lower);
      ForEachPieceOfRows(run_tasks, chosen.count, write);
      begin = end;
    } while (begin < last_root);
  }

  // The columns of the update for the roots [begin, end), from the weights and the differences of
  // poles and roots. The first is column 0 of the update. One kept element has its vector from
  // SetOnly.
  template <class Poles>
  void MakeColumns(int64_t begin, int64_t end, const RunTasks& run_tasks) {
    if (kept_count_ == 1) return;
    const auto make = [&](int64_t column) {
      const int64_t j = begin + column;
      const V origin = Load<R>(origins_ + j), tau = Load<R>(taus_ + j);
      V sum{};
      for (int64_t i = 0; i < kept_count_; ++i) {
        const V difference = Poles::Difference(Widen<V>(poles_[i]), origin) - tau;
        const V ratio = Widen<V>(weights_[i]) / difference;
        sum = MulAdd(ratio, ratio, sum);
        Store<R>(ratio, ratios_.At(i, column).data);
      }
      const V inverse = Number<V>(1) / Sqrt(sum);
      for (int64_t i = 0; i < kept_count_; ++i) {
        Store<R>(inverse * Load<R>(ratios_.At(i, column).data), UpdateRow(i).At(0, column).data);
      }
      Store<R>(inverse, inverse_norms_ + j);
    };
    ForEachPieceOfColumns<R>(run_tasks, 0, end - begin, [&](int64_t first, int64_t last) {
      for (int64_t column = first; column < last; column += kWidth<R>) make(column);
    });
  }

  // Does the work of WriteVectors for one element of each vector. The elements lie in a row.
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
  // Places: kept vectors of the upper half come first, then those of both halves, then the lower
  // half's.
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

  // moved_ holds the kept vectors in their places, then the others. update_ holds the vectors of
  // the secular equation in columns.
  int64_t block_;  // the columns of the update that are in memory
  bool in_blocks_;
  Rows<R> moved_, products_, ratios_, update_;
  R *weights_, *poles_, *roots_, *origins_, *taus_, *sorted_, *inverse_norms_;
  // order_ sorts the diagonal. kept_ and deflated_ split it, ascending. place_ is the place of a
  // kept element. source_ is the root of each result, or kept_count() and more.
  std::unique_ptr<int32_t[]> order_, kept_, deflated_, place_, source_;
  std::unique_ptr<Half[]> half_;
  int64_t size_ = 0, kept_count_ = 0, upper_count_ = 0, both_count_ = 0;
};

}  // namespace linalg::blocked
