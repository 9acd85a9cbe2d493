// Eigenvalues and eigenvectors of Hermitian matrices, in three parts.
//
// ReduceHermitian scales the matrix by a power of two to a norm near 1 and reduces it to
// tridiagonal form, like LAPACK's hetrd. The product Q of the reflectors takes the matrix's place.
// A team of threads does this.
//
// RecordedQl diagonalises the tridiagonal matrix, by one thread, and records its rotations.
//
// FinishEigh, by a team again, applies the rotations to Q. A thread has rows of its own, so a sweep
// needs a barrier only at its end. All of this takes the memory of one matrix.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/team/largest.h"
#include "kernels/team/recorded_ql.h"

namespace linalg::team {

// Elements of a row or column that a thread takes at a time.
template <class E>
inline constexpr int kEighBlock = kComplexElement<E> ? 2 : 4;

// Calls body(std::integral_constant<int, kCount>(), i) for blocks that cover [first, last).
template <int kBlock, class Body>
LINALG_TEAM void ForEachBlock(int first, int last, Body&& body) {
  int i = first;
  for (; i + kBlock <= last; i += kBlock) body(std::integral_constant<int, kBlock>(), i);
  for (; i < last; ++i) body(std::integral_constant<int, 1>(), i);
}

// Calls body(std::integral_constant<int, kCount>(), i) for the thread's share of [first, last). It
// takes two at a time, i[0] and i[1], while there are that many. Both are equal where no thread
// after it has any.
template <class Body>
LINALG_TEAM void ForEachPair(int thread, int size, int first, int last, Body&& body) {
  for (; first + thread < last; first += 2 * size) {
    const int i = first + thread, other = i + size;
    const int both[2] = {i, other < last ? other : i};
    if (first + size < last) {
      body(std::integral_constant<int, 2>(), both);
    } else {
      body(std::integral_constant<int, 1>(), both);
    }
  }
}

template <int kBlock, class E>
LINALG_TEAM E SumOfChains(const E (&sum)[kBlock]) {
  if constexpr (kBlock == 2) {
    return sum[0] + sum[1];
  } else {
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
}

// The workspace of ReduceHermitian.
template <class E>
struct ReductionWork {
  E* a;  // n by n; the operand
  int ld;
  E *w, *product, *taus;  // n each
};

// A step of the reduction: subtracts v wᴴ + w vᴴ from rows i[0] and i[1], from column `first` on,
// and multiplies them by u.
template <int kRows, class E>
LINALG_TEAM void UpdateAndMultiply(const ReductionWork<E>& work, const int* i, const E* v,
                                   const E* u, int first, int n, E* products) {
  constexpr int kBlock = kEighBlock<E>;
  const E* const w = work.w;
  E* row[kRows];
  E vi[kRows], wi[kRows], sum[kRows][kBlock] = {};
  for (int r = 0; r < kRows; ++r) {
    row[r] = work.a + i[r] * work.ld;
    vi[r] = v[i[r]];
    wi[r] = w[i[r]];
  }
  ForEachBlock<kBlock>(first, n, [&](auto count, int j) {
    constexpr int kCount = decltype(count)::value;
    E vj[kCount], wj[kCount], uj[kCount], x[kRows][kCount];
    for (int c = 0; c < kCount; ++c) {
      vj[c] = Conj(v[j + c]);
      wj[c] = Conj(w[j + c]);
      uj[c] = u[j + c];
      for (int r = 0; r < kRows; ++r) x[r][c] = row[r][j + c];
    }
    for (int c = 0; c < kCount; ++c) {
      for (int r = 0; r < kRows; ++r) {
        x[r][c] = NegMulAdd(wi[r], vj[c], NegMulAdd(vi[r], wj[c], x[r][c]));
        sum[r][c] = NegMulAdd(-x[r][c], uj[c], sum[r][c]);
      }
    }
    for (int c = 0; c < kCount; ++c) {
      for (int r = 0; r < kRows; ++r) row[r][j + c] = x[r][c];
    }
  });
  for (int r = 0; r < kRows; ++r) products[r] = SumOfChains(sum[r]);
}

// Reduces the matrix, of norm 1 and with both triangles, to tridiagonal form in d and e, of n and n
// - 1 elements. Row k keeps the vector of reflector k, work.taus its factor. The update of each
// step is made by the pass that multiplies by the next reflector's vector (Dongarra, Sorensen and
// Hammarling, 1989).
template <class Team, class E>
LINALG_TEAM void Tridiagonalise(const Team& team, int n, const ReductionWork<E>& work, double* d,
                                double* e) {
  using V = RealElement<E>;
  E* const a = work.a;
  E *const w = work.w, *const product = work.product;
  const E* v = a;  // of the update to make: none yet, because w is zero
  team.Phase([&](int thread) {
    for (int j = thread; j < n; j += team.size()) w[j] = E{};
  });
  for (int k = 0; k < n; ++k) {
    E* const u = a + k * work.ld;
    const V rest = team.template Sum<V>([&](int thread) {
      V squares{};
      for (int j = k + thread; j < n; j += team.size()) {
        E x = u[j];
        if (k > 0) x = NegMulAdd(w[k], Conj(v[j]), NegMulAdd(v[k], Conj(w[j]), x));
        u[j] = x;
        if (j == k) d[k] = Re(x);
        if (j == k + 1) product[k] = x;
        if (j > k + 1) squares = NormAdd(x, squares);
      }
      return squares;
    });
    if (k + 1 == n) break;
    const E alpha = Conj(product[k]);
    if (k >= ReflectorCount<E>(n)) {
      team.Phase([&](int thread) {
        if (thread == 0) e[k] = Re(alpha);
      });
      continue;
    }
    const TridiagonalScale<E> made(alpha, rest);
    team.Phase([&](int thread) {
      for (int j = k + 1 + thread; j < n; j += team.size()) {
        u[j] = j == k + 1 ? FromReal<E>(V(1)) : ConjMulAdd(u[j], made.scale, E{});
      }
      if (thread != 0) return;
      e[k] = made.beside;
      work.taus[k] = made.tau;
    });
    const V dot = team.template Sum<V>([&](int thread) {
      V sum{};
      ForEachPair(thread, team.size(), k + 1, n, [&](auto count, const int* i) {
        constexpr int kRows = decltype(count)::value;
        E products[kRows];
        UpdateAndMultiply<kRows>(work, i, v, u, k + 1, n, products);
        for (int r = 0; r < kRows; ++r) {
          if (r == 1 && i[1] == i[0]) continue;
          product[i[r]] = products[r];
          sum = RealDotAdd(u[i[r]], products[r], sum);
        }
      });
      return sum;
    });
    // w = tau a u + c u, with c such that the update is the reflection from both sides.
    const V c = ReflectedShare(made.tau, dot);
    team.Phase([&](int thread) {
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        w[i] = NegMulAdd(-made.tau, product[i], c * u[i]);
      }
    });
    v = u;
  }
}

// Multiplies columns j[0] and j[1] of Q by reflector k from the left. The columns from k + 2 on
// hold the product of the later reflectors. Column k + 1 has zeros below its row instead of the
// first unit vector.
template <int kCols, class E>
LINALG_TEAM void ReflectColumns(const ReductionWork<E>& work, const int* j, int k, int n, E tau) {
  constexpr int kBlock = kEighBlock<E>;
  const int ld = work.ld;
  E* const a = work.a;
  const E* const u = a + k * ld;
  E sum[kCols][kBlock] = {};
  const auto for_each_block = [&](auto&& body) {
    ForEachBlock<kBlock>(k + 2, n, [&](auto count, int i) {
      constexpr int kCount = decltype(count)::value;
      E ui[kCount], x[kCols][kCount];
      for (int c = 0; c < kCount; ++c) {
        ui[c] = u[i + c];
        for (int r = 0; r < kCols; ++r) x[r][c] = a[(i + c) * ld + j[r]];
      }
      body(count, i, ui, x);
    });
  };
  for_each_block([&](auto count, int, const auto& ui, const auto& x) {
    for (int c = 0; c < decltype(count)::value; ++c) {
      for (int r = 0; r < kCols; ++r) sum[r][c] = ConjMulAdd(ui[c], x[r][c], sum[r][c]);
    }
  });
  E factor[kCols];
  for (int r = 0; r < kCols; ++r) {
    const E first = FromReal<E>(RealElement<E>(j[r] == k + 1));
    factor[r] = Mul(tau, SumOfChains(sum[r]) + first);
    a[(k + 1) * ld + j[r]] = first - factor[r];
  }
  for_each_block([&](auto count, int i, const auto& ui, const auto& x) {
    for (int c = 0; c < decltype(count)::value; ++c) {
      for (int r = 0; r < kCols; ++r) {
        a[(i + c) * ld + j[r]] = NegMulAdd(ui[c], factor[r], x[r][c]);
      }
    }
  });
}

// Replaces the reflectors of Tridiagonalise by their product, n > 0. The product of the last ones
// takes the last rows and columns, and grows by one row and column with each reflector.
template <class Team, class E>
LINALG_TEAM void FormVectors(const Team& team, int n, const ReductionWork<E>& work) {
  using V = RealElement<E>;
  E* const a = work.a;
  const int ld = work.ld, reflectors = ReflectorCount<E>(n);
  team.Phase([&](int thread) {
    const int column = reflectors < 0 ? 0 : reflectors;
    for (int i = column + 1 + thread; i < n; i += team.size()) a[i * ld + column] = E{};
    if (thread == 0 && reflectors + 1 < n) a[(n - 1) * ld + n - 1] = FromReal<E>(V(1));
  });
  for (int k = reflectors - 1; k >= 0; --k) {
    const E tau = work.taus[k];
    team.Phase([&](int thread) {
      ForEachPair(thread, team.size(), k + 1, n, [&](auto count, const int* j) {
        ReflectColumns<decltype(count)::value>(work, j, k, n, tau);
      });
      for (int i = k + 1 + thread; i < n; i += team.size()) a[i * ld + k] = E{};
    });
  }
  team.Phase([&](int thread) {
    for (int j = thread; j < n; j += team.size()) a[j] = FromReal<E>(V(j == 0));
  });
}

// The tridiagonal form of the Hermitian part of work.a, scaled by a power of two. d has n elements
// and e has n - 1. The inverse of the scale is kept too. If kVectors is true, Q of that form takes
// the operand's place. Returns 0, or -1 for a matrix that is not finite; d and e are zero then.
template <bool kVectors, class Team, class E>
LINALG_TEAM int ReduceHermitian(const Team& team, int n, HermitianPart part,
                                const ReductionWork<E>& work, double* d, double* e,
                                RealElement<E>* unscale) {
  using V = RealElement<E>;
  const Grid grid = RowGrid(team);
  E* const a = work.a;
  const int ld = work.ld;
  const V largest = team.template Best<V>([&](int thread) {
                          Candidate<V> best{V(0), 0};
                          ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
                            if (j > i) return;
                            const E x = part.At(i, j, [&](int k, int l) { return a[k * ld + l]; });
                            a[i * ld + j] = x;
                            best = best.Better({LargerComponent(x), 0});
                          });
                          return best;
                        })
                        .value;
  const bool finite = IsFinite(largest);
  V inverse;
  const V scale = PowerOfTwoScale(largest, inverse);
  team.Phase([&](int thread) {
    if (thread == 0) *unscale = inverse;
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (!finite && i == j) d[i] = 0;
      if (!finite && i == j + 1) e[j] = 0;
      if (!finite || j > i) return;
      const E x = scale * a[i * ld + j];
      a[i * ld + j] = x;
      if (j < i) a[j * ld + i] = Conj(x);
    });
  });
  if (!finite) return kNotFinite;
  Tridiagonalise(team, n, work, d, e);
  if constexpr (kVectors) {
    if (n > 0) FormVectors(team, n, work);
  }
  return 0;
}

// The rotations of two sweeps that are applied together. The second sweep is one rotation behind.
template <class V>
struct alignas(16) RotationPair {
  ShearedRotation<V> first, second;
};

// Two sweeps that are applied together, or only the first where they do not meet, or none.
struct SweepPair {
  QlSweep first{0, 0}, second{0, 0};
  int low = 0, high = 0;  // of both

  SweepPair() = default;
  LINALG_INLINE SweepPair(QlSweep one, QlSweep other) : first(one), low(one.first), high(one.last) {
    if (other.first >= one.last || one.first >= other.last) return;
    second = other;
    if (other.first < low) low = other.first;
    if (other.last > high) high = other.last;
  }

  LINALG_INLINE int Rotations() const { return high - low; }
  LINALG_INLINE int Sweeps() const {
    return (first.last > first.first) + (second.last > second.first);
  }
  LINALG_INLINE int Shears() const { return first.last - first.first + second.last - second.first; }

  // The shears of both sweeps at rotation k, from those that begin at `shears`. The second sweep is
  // at rotation k + 1. They are zero where a sweep has no such rotation.
  template <class V>
  LINALG_INLINE void Fetch(const V* shears, int k, V& one, V& other) const {
    const int count = first.last - first.first;
    one = k >= first.first && k < first.last ? shears[first.last - 1 - k] : V(0);
    other =
        k + 1 >= second.first && k + 1 < second.last ? shears[count + second.last - 2 - k] : V(0);
  }
};

// Eigenvalues without vectors, ascending, by one thread. ReduceHermitian has returned `info` and
// left `unscale`; RecordedQl has diagonalised d up to `progress`. Returns info as FinishEigh does.
template <class V>
LINALG_INLINE int FinishEigvalsh(int n, QlProgress progress, double* d, int info, V unscale,
                                 V* values) {
  if (info == 0) info = progress.left;
  SortAscending(d, n);
  for (int k = 0; k < n; ++k) values[k] = info != 0 ? NaN<V>() : unscale * static_cast<V>(d[k]);
  return info;
}

// The workspace of FinishEigh.
template <class E>
struct RotationWork {
  E* q;  // n by n
  int ld;
  RotationPair<RealElement<E>>* rotations;  // 2 n
  int* order;                               // n
  QlProgress* progress;                     // 1
};

// Applies two sweeps to rows i[0] and i[1]: the rotations of columns high and high - 1, down to low
// + 1 and low.
template <int kRows, class E>
LINALG_TEAM void RotateRows(const RotationWork<E>& work, const int* i, int low, int high,
                            const RotationPair<RealElement<E>>* rotations) {
  using V = RealElement<E>;
  constexpr int kBlock = sizeof(E) <= 4 ? 4 : sizeof(E) <= 8 ? 2 : 1;
  const int count = high - low;
  E* row[kRows];
  E first[kRows], second[kRows];  // the elements that are rotated on
  for (int r = 0; r < kRows; ++r) {
    row[r] = work.q + i[r] * work.ld + high;
    first[r] = row[r][0];
    second[r] = rotations[0].first.Rotate(row[r][-1], first[r]);
  }
  ForEachBlock<kBlock>(1, count, [&](auto size, int k) {
    constexpr int kCount = decltype(size)::value;
    RotationPair<V> rotation[kCount];
    E x[kRows][kCount];
    for (int c = 0; c < kCount; ++c) {
      rotation[c] = rotations[k + c];
      for (int r = 0; r < kRows; ++r) x[r][c] = row[r][-(k + c + 1)];
    }
    for (int c = 0; c < kCount; ++c) {
      for (int r = 0; r < kRows; ++r) {
        x[r][c] = rotation[c].first.Rotate(x[r][c], first[r]);
        x[r][c] = rotation[c].second.Rotate(x[r][c], second[r]);
      }
    }
    for (int c = 0; c < kCount; ++c) {
      for (int r = 0; r < kRows; ++r) row[r][1 - (k + c)] = x[r][c];
    }
  });
  for (int r = 0; r < kRows; ++r) {
    row[r][1 - count] = rotations[count].second.Rotate(first[r], second[r]);
    row[r][-count] = second[r];
  }
}

// Applies the first `sweeps` of a record to q, two at a time, which halves the traffic. It fetches
// the next ones meanwhile.
template <class Team, class E>
LINALG_TEAM void ApplySweeps(const Team& team, int n, const RotationWork<E>& work,
                             const QlRecord<RealElement<E>>& record, int sweeps) {
  using V = RealElement<E>;
  constexpr int kAhead = 2;  // rotations that a thread fetches at once
  const int size = team.size();
  const auto sweep_at = [&](int s) { return s < sweeps ? record.sweeps[s] : QlSweep{0, 0}; };
  const auto pair_at = [&](int s) { return SweepPair(sweep_at(s), sweep_at(s + 1)); };
  SweepPair pair, next = pair_at(0);
  const V* shears = record.shears;  // of `next`
  int taken = 0;                    // sweeps, with those of `next`
  RotationPair<V>*current = work.rotations, *coming = work.rotations + n;
  do {
    taken += next.Sweeps();
    const SweepPair after = pair_at(taken);
    const int count = next.Sweeps() > 0 ? next.Rotations() + 1 : 0;
    team.Phase([&](int thread) {
      V one[kAhead], other[kAhead];
      for (int c = 0; c < kAhead; ++c) {
        next.Fetch(shears, next.high - 1 - (thread + c * size), one[c], other[c]);
      }
      if (pair.Sweeps() > 0) {
        ForEachPair(thread, size, 0, n, [&](auto rows, const int* i) {
          RotateRows<decltype(rows)::value>(work, i, pair.low, pair.high, current);
        });
      }
      for (int c = 0; c < kAhead; ++c) {
        const int k = thread + c * size;
        if (k < count)
          coming[k] = {ShearedRotation<V>::Of(one[c]), ShearedRotation<V>::Of(other[c])};
      }
      for (int k = thread + kAhead * size; k < count; k += size) {
        next.Fetch(shears, next.high - 1 - k, one[0], other[0]);
        coming[k] = {ShearedRotation<V>::Of(one[0]), ShearedRotation<V>::Of(other[0])};
      }
    });
    shears += next.Shears();
    pair = next;
    next = after;
    RotationPair<V>* const used = current;
    current = coming;
    coming = used;
  } while (pair.Sweeps() > 0);
}

// Eigenvectors, column by column in the order of the eigenvalues.
template <class E>
struct OrderedEigenvectors {
  const E* q;
  int ld;
  const int* order;
  int info;

  LINALG_INLINE E operator()(int i, int j) const {
    return info != 0 ? NaN<E>() : q[i * ld + order[j]];
  }
};

// Computes eigenvalues in `values`, ascending, and their vectors. ReduceHermitian has returned
// `info` and left d, e, Q and `unscale`. RecordedQl has diagonalised d and e up to `progress`, with
// the record.
//
// Both are NaN where the result's info is not 0: it is ReduceHermitian's, or the number of elements
// of e that did not vanish. If the record was full before they did, it is filled again.
template <class Team, class E>
LINALG_TEAM OrderedEigenvectors<E> FinishEigh(const Team& team, int n, const RotationWork<E>& work,
                                              const QlRecord<RealElement<E>>& record,
                                              QlProgress progress, double* d, double* e, int info,
                                              RealElement<E> unscale, RealElement<E>* values) {
  using V = RealElement<E>;
  if (info == 0) {
    for (int sweeps = 0;;) {
      ApplySweeps(team, n, work, record, progress.sweeps);
      sweeps += progress.sweeps;
      if (progress.left == 0 || sweeps >= kQlSweeps * n) break;
      team.Phase([&](int thread) {
        if (thread == 0) *work.progress = RecordedQl<true>(d, e, n, record);
      });
      progress = *work.progress;
    }
    info = progress.left;
  }
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) {
      int rank = 0;
      for (int j = 0; j < n; ++j) rank += ComesBefore(d[j], j, d[i], i);
      work.order[rank] = i;
      values[rank] = info != 0 ? NaN<V>() : unscale * static_cast<V>(d[i]);
    }
  });
  return {.q = work.q, .ld = work.ld, .order = work.order, .info = info};
}

}  // namespace linalg::team
