// Small matrices by part of a warp, whose threads hold whole rows or columns in registers.
//
// Threads of such a team can read each other's registers. Beside the functions of
// kernels/team/team.h, the team has
//
//   PerThread<X>              an X of each thread: x[thread]
//   void Each(body) const     body(thread) on each thread, without a barrier: it touches nothing
//   that
//                             another thread does
//   V From<V>(thread, body)   body(thread) of that thread, on all threads
//
// A step of elimination removes the first element of each row: x[j] is the one in column k + j. So
// registers have constant names though k is not constant. Steps are compiled for the number of
// columns left, in eights. The loop over them stands in each algorithm: inside a lambda, ptxas
// keeps some of its registers in memory.
//
// Rows stay with their threads. Each knows the place to which LAPACK's exchanges would have moved
// it. The arithmetic of an element is that of lu.h, cholesky.h and triangular.h, in the same order.
#pragma once

#include "kernels/team/cholesky.h"
#include "kernels/team/lu.h"

namespace linalg::team {

// Columns by which the compiled steps differ.
inline constexpr int kStepColumns = 8;

// kCount of X for each thread: number i belongs to thread i % size.
template <class Team, class X, int kCount>
class Fragment {
 public:
  LINALG_TEAM explicit Fragment(const Team& team) : team_(team), per_thread_(team) {}

  // Calls body(i, x) for each of them, without a barrier and with one.
  template <class Body>
  LINALG_TEAM void Each(Body&& body) {
    team_.Each([&](int thread) { ForThread(thread, body); });
  }
  template <class Body>
  LINALG_TEAM void Phase(Body&& body) {
    team_.Phase([&](int thread) { ForThread(thread, body); });
  }

  // body(i, x) for those of a thread.
  template <class Body>
  LINALG_TEAM void ForThread(int thread, Body&& body) {
    LINALG_UNROLL
    for (int s = 0; s < kCount; ++s) body(thread + s * team_.size(), per_thread_[thread].x[s]);
  }

  // Returns get(x) of number i on all threads.
  template <class V, class Get>
  LINALG_TEAM V From(int i, Get&& get) {
    const int slot = i / team_.size();
    return team_.template From<V>(i % team_.size(), [&](int thread) {
      V value = get(per_thread_[thread].x[0]);
      LINALG_UNROLL
      for (int s = 1; s < kCount; ++s) {
        const V other = get(per_thread_[thread].x[s]);
        value = Choose(slot == s, other, value);
      }
      return value;
    });
  }

 private:
  struct Slots {
    X x[kCount];
  };

  const Team& team_;
  typename Team::template PerThread<Slots> per_thread_;
};

// LU factors with partial pivoting of a matrix of at most kCols columns, with kRows rows for each
// thread. If kRhs is true, elimination also transforms a right-hand side.
template <class Team, class E, int kRows, int kCols, bool kRhs = false>
class RowLu {
  using V = RealElement<E>;

 public:
  // Takes a (rows, cols). The factors' rows replace its own in place, without exchanges: row i of
  // the factors is row permutation[i] of `a`. rhs(i) is element i of the right-hand side.
  template <class Rhs>
  LINALG_TEAM RowLu(const Team& team, int rows, int cols, E* a, int ld, Rhs&& rhs)
      : team_(team),
        fragment_(team),
        rows_(rows),
        cols_(cols),
        count_(rows < cols ? rows : cols),
        a_(a),
        ld_(ld) {
    fragment_.Each([&](int i, Row& row) {
      row.place = i < rows ? i : kNowhere;
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) row.x[j] = i < rows && j < cols ? a[i * ld + j] : E{};
      if constexpr (kRhs) row.y = i < rows ? rhs(i) : E{};
    });
  }
  LINALG_TEAM RowLu(const Team& team, int rows, int cols, E* a, int ld)
      : RowLu(team, rows, cols, a, ld, [](int) { return E{}; }) {}

  // Factors. Returns 0, the 1-based index of the first zero pivot, or kHoldsNaN. Every thread calls
  // on_pivot(k, place, pivot) at each step; places and permutation count from 0.
  template <class OnPivot>
  LINALG_TEAM int Factor(int* permutation, OnPivot&& on_pivot) {
    Eliminate<kCols>(0, on_pivot);
    fragment_.Phase([&](int i, Row& row) {
      if (row.place >= 0) permutation[row.place] = i;
    });
    if (count_ == 0) return 0;
    // A NaN has spread to the results of the last step: its row of U, and the elements of L below.
    const int last = count_ - 1;
    const E* const row_of_u = a_ + permutation[last] * ld_;
    const bool has_nan = team_.Any([&](int thread) {
      bool found = false;
      for (int j = last + thread; j < cols_; j += team_.size()) found |= IsNaN(row_of_u[j]);
      fragment_.ForThread(
          thread, [&](int, const Row& row) { found |= row.place > last && IsNaN(row.left); });
      return found;
    });
    return has_nan ? kHoldsNaN : singular_;
  }

  // x = U⁻¹ y, where y is the eliminated right-hand side. A thread calls put(i, x[i]).
  template <class Put>
  LINALG_TEAM void SolveUpper(const int* permutation, Put&& put) {
    for (int k = rows_ - 1; k >= 0; --k) {
      const E x = fragment_.template From<E>(
          permutation[k], [](const Row& row) { return row.divisor.Divide(row.y); });
      fragment_.Each([&](int i, Row& row) {
        if (row.place == k) put(k, x);
        if (row.place >= 0 && row.place < k) row.y = NegMulAdd(a_[i * ld_ + k], x, row.y);
      });
    }
  }

  // Puts the factors of a square matrix in order, transposed: element i, j becomes a[j * ld + i].
  // divisors[k] divides by pivot k.
  LINALG_TEAM void TransposeFactors(Divisor<E>* divisors) {
    fragment_.Phase([&](int i, Row& row) {
      if (row.place >= 0) divisors[row.place] = row.divisor;
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) row.x[j] = i < rows_ && j < cols_ ? a_[i * ld_ + j] : E{};
    });
    fragment_.Phase([&](int, Row& row) {
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) {
        if (row.place >= 0 && j < cols_) a_[j * ld_ + row.place] = row.x[j];
      }
    });
  }

 private:
  static constexpr int kNowhere = -1;
  // A candidate's index holds its place and, in the lowest kRowBits, its row.
  static constexpr int kRowBits = 6;
  static constexpr int kNone = std::numeric_limits<int>::max();

  struct Row {
    E x[kCols];
    E left, y;
    Divisor<E> divisor;  // by the pivot, once it is known
    int place;
  };

  // Does the steps from k on while more than kWidth - kStepColumns columns are left, and then the
  // others.
  template <int kWidth, class OnPivot>
  LINALG_TEAM void Eliminate(int k, OnPivot&& on_pivot) {
    for (; k < count_ && cols_ - k > kWidth - kStepColumns; ++k) Step<kWidth>(k, on_pivot);
    if constexpr (kWidth > kStepColumns) Eliminate<kWidth - kStepColumns>(k, on_pivot);
  }

  template <int kWidth, class OnPivot>
  LINALG_TEAM void Step(int k, OnPivot&& on_pivot) {
    const auto best = team_.template Best<V>([&](int thread) {
      Candidate<V> largest{V(-1), kNone};
      fragment_.ForThread(thread, [&](int i, Row& row) {
        const V value = PivotCandidate(row.x[0], row.place, k).value;
        const bool is_left = row.place >= k;
        largest =
            largest.Better({is_left ? value : V(-1), is_left ? row.place << kRowBits | i : kNone});
      });
      return largest;
    });
    const int place = best.index >> kRowBits, picked = best.index & ((1 << kRowBits) - 1);
    const bool is_zero = best.value == V(0);
    if (is_zero && singular_ == 0) singular_ = k + 1;
    const E pivot = fragment_.template From<E>(picked, [](const Row& row) { return row.x[0]; });
    on_pivot(k, place, pivot);
    const Divisor<E> divisor(is_zero ? FromReal<E>(V(1)) : pivot);
    fragment_.Each([&](int i, Row& row) {
      row.place = i == picked ? k : row.place == k ? place : row.place;
      row.left = divisor.Divide(row.x[0]);
      if (i == picked) row.divisor = divisor;
      if (row.place >= k) a_[i * ld_ + k] = i == picked ? pivot : row.left;
    });
    // All rows continue, also those picked as pivots, which saves a condition. Rows of U are stored
    // when they are picked.
    E* const row_of_u = a_ + picked * ld_ + k;
    const int owner = picked % team_.size();
    LINALG_UNROLL
    for (int j = 1; j < kWidth; ++j) {
      const E above = fragment_.template From<E>(picked, [=](const Row& row) { return row.x[j]; });
      team_.Each([&](int thread) {
        const bool is_there = j <= kWidth - kStepColumns || j < cols_ - k;
        if (thread == owner && is_there) row_of_u[j] = above;
      });
      fragment_.Each([&](int, Row& row) { row.x[j - 1] = NegMulAdd(row.left, above, row.x[j]); });
    }
    if constexpr (kRhs) {
      const E above = fragment_.template From<E>(picked, [](const Row& row) { return row.y; });
      fragment_.Each([&](int, Row& row) {
        if (row.place > k) row.y = NegMulAdd(row.left, above, row.y);
      });
    }
  }

  const Team& team_;
  Fragment<Team, Row, kRows> fragment_;
  int rows_, cols_, count_;
  E* a_;
  int ld_;
  int singular_ = 0;
};

// The Cholesky factor of the Hermitian part of a matrix of at most kCols rows, with kRows rows for
// each thread.
template <class Team, class E, int kRows, int kCols>
class RowCholesky {
  using V = RealElement<E>;

 public:
  // Takes a (n, n), which the factor replaces.
  LINALG_TEAM RowCholesky(const Team& team, int n, E* a, int ld, HermitianPart part)
      : team_(team), fragment_(team), n_(n), a_(a), ld_(ld) {
    fragment_.Phase([&](int i, Row& row) {
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) {
        // Loads both elements of a valid row and column, as if the first lay below the diagonal.
        // That needs no condition, and elements above the diagonal are not used.
        const int r = i < n ? i : 0, c = j < n ? j : 0;
        const E here = a[r * ld + c], there = a[c * ld + r];
        const auto get = [&](int64_t k, int64_t) { return k == 1 ? here : there; };
        row.x[j] = Choose(i == j, FromReal<E>(Re(here)), part.At(1, 0, get));
      }
    });
  }

  // Returns 0, or the order of the first leading minor that is not positive.
  LINALG_TEAM int Factor() {
    Eliminate<kCols>(0);
    team_.Phase([](int) {});
    return failed_;
  }

 private:
  struct Row {
    E x[kCols];
    E left;
  };

  template <int kWidth>
  LINALG_TEAM void Eliminate(int k) {
    for (; n_ - k > kWidth - kStepColumns; ++k) Step<kWidth>(k);
    if constexpr (kWidth > kStepColumns) Eliminate<kWidth - kStepColumns>(k);
  }

  template <int kWidth>
  LINALG_TEAM void Step(int k) {
    const V pivot = Re(fragment_.template From<E>(k, [](const Row& row) { return row.x[0]; }));
    // NaN is not positive.
    if (!(pivot > V(0)) && failed_ == 0) failed_ = k + 1;
    const V root = Sqrt(pivot), inverse = V(1) / root;
    fragment_.Each([&](int i, Row& row) {
      row.left = inverse * row.x[0];
      if (i >= k && i < n_) a_[i * ld_ + k] = i == k ? FromReal<E>(root) : row.left;
    });
    LINALG_UNROLL
    for (int j = 1; j < kWidth; ++j) {
      const E other =
          Conj(fragment_.template From<E>(k + j, [](const Row& row) { return row.left; }));
      fragment_.Each([&](int, Row& row) { row.x[j - 1] = NegMulAdd(row.left, other, row.x[j]); });
    }
  }

  const Team& team_;
  Fragment<Team, Row, kRows> fragment_;
  int n_;
  E* a_;
  int ld_;
  int failed_ = 0;
};

// Solutions with LU factors of at most kSize rows, which are in order and transposed
// (RowLu::TransposeFactors). Each thread holds kColumns columns of the solution.
template <class Team, class E, int kColumns, int kSize>
class ColumnSolve {
 public:
  // `work` holds n rows of as many columns as the team holds.
  LINALG_TEAM ColumnSolve(const Team& team, int n, const E* lu, int ld, const Divisor<E>* divisors,
                          E* work)
      : fragment_(team),
        n_(n),
        lu_(lu),
        ld_(ld),
        divisors_(divisors),
        work_(work),
        taken_(team.size() * kColumns) {}

  // x = U⁻¹ L⁻¹ b, of `cols` columns. A thread calls put(i, j, x) for the solution of b(i, j).
  template <class Rhs, class Put>
  LINALG_TEAM void Solve(int cols, Rhs&& b, Put&& put) {
    for (int first = 0; first < cols; first += taken_) {
      // Some rows at a time: if all loads were in flight at once, their addresses would fill the
      // registers.
      LINALG_UNROLL
      for (int above = 0; above < kSize; above += kStepColumns) {
        fragment_.Phase([&](int c, Column& column) {
          // Threads past the last column take the first one again.
          const int j = first + c < cols ? first + c : first;
          LINALG_UNROLL
          for (int r = 0; r < kStepColumns; ++r) {
            const int i = above + r;
            column.x[i] = i < n_ ? b(i, j) : E{};
          }
        });
      }
      Forward<kSize>(0);
      fragment_.Each([&](int c, Column& column) {
        LINALG_UNROLL
        for (int i = 0; i < kSize; ++i) {
          column.x[i] = i < n_ ? work_[(n_ - 1 - i) * taken_ + c] : E{};
        }
      });
      Backward<kSize>(n_ - 1, [&](int i, int c, E x) {
        if (first + c < cols) put(i, first + c, x);
      });
    }
  }

 private:
  struct Column {
    E x[kSize];
    E solved;
  };

  // Row k of L⁻¹ b, and its update of the rows below.
  template <int kWidth>
  LINALG_TEAM void Forward(int k) {
    for (; n_ - k > kWidth - kStepColumns; ++k) {
      fragment_.Each([&](int c, Column& column) {
        column.solved = column.x[0];
        work_[k * taken_ + c] = column.solved;
      });
      Update<kWidth>(lu_ + k * (ld_ + 1), 1, n_ - k);
    }
    if constexpr (kWidth > kStepColumns) Forward<kWidth - kStepColumns>(k);
  }

  // Row k of U⁻¹ L⁻¹ b, and its update of the rows above.
  template <int kWidth, class Put>
  LINALG_TEAM void Backward(int k, Put&& put) {
    for (; k + 1 > kWidth - kStepColumns; --k) {
      const Divisor<E> divisor = divisors_[k];
      fragment_.Each([&](int c, Column& column) {
        column.solved = divisor.Divide(column.x[0]);
        put(k, c, column.solved);
      });
      Update<kWidth>(lu_ + k * (ld_ + 1), -1, k + 1);
    }
    if constexpr (kWidth > kStepColumns) Backward<kWidth - kStepColumns>(k, put);
  }

  // `left` rows remain, counted from the one just solved.
  template <int kWidth>
  LINALG_TEAM void Update(const E* factors, int step, int left) {
    LINALG_UNROLL
    for (int i = 1; i < kWidth; ++i) {
      const E factor = i <= kWidth - kStepColumns || i < left ? factors[step * i] : E{};
      fragment_.Each([&](int, Column& column) {
        column.x[i - 1] = NegMulAdd(factor, column.solved, column.x[i]);
      });
    }
  }

  Fragment<Team, Column, kColumns> fragment_;
  int n_;
  const E* lu_;
  int ld_;
  const Divisor<E>* divisors_;
  E* work_;
  int taken_;
};

}  // namespace linalg::team
