// A panel of the reduction of a large Hermitian matrix to tridiagonal form, by a team of threads
// (LAPACK's latrd; Dongarra, Sorensen and Hammarling, 1989). The matrix itself does not change: the
// panel's reflectors are applied to its remaining rows and columns later, as A - V Wᴴ - W Vᴴ.
//
// The matrix is in global memory. Each column of the panel takes one pass over the rest of it. That
// pass reads whole rows, with a thread for each column, so it needs both triangles.
#pragma once

#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/team/qr_panel.h"
#include "kernels/team/team.h"

namespace linalg::team {

// Threads that read neighbouring elements of a row of the matrix, and of a row of the panel.
inline constexpr int kMatrixLanes = 64, kPanelLanes = 32;

// Rows of ReductionPanelWork::products.
inline int ProductRows(int team_size) { return Grid(team_size, kMatrixLanes).groups; }

// The workspace of a panel of `cols` columns of an n by n matrix.
template <class E>
struct ReductionPanelWork {
  E* u;         // n: the vector of the current reflector
  E* products;  // ProductRows by n
  E* sums;      // 2 cols rows of kPanelLanes + 1
  E* z;         // 2 cols
  E* head;      // 1
  E* taus;      // cols
  E* t;         // cols by cols, rows `ldt` apart
  int ldt;
};

// Products with the reflector's vector u: each thread's share of A u, and of the products of u with
// the panel's vectors so far. Only rows and columns from `begin` on count.
template <class Team, class E, class Memory>
LINALG_TEAM void MultiplyByReflector(const Team& team, int n, int begin, int done, int cols,
                                     const Memory& memory, const ReductionPanelWork<E>& work) {
  constexpr int kCols = 16 / sizeof(E) < 2 ? 2 : 16 / sizeof(E);
  const Grid matrix(team.size(), kMatrixLanes), panel(team.size(), kPanelLanes);
  team.Phase([&](int thread) {
    const int group = matrix.Group(thread);
    for (int first = begin + matrix.Across(thread); first < n; first += kCols * matrix.width) {
      // Past the last column, a thread takes its first one again, which needs no condition.
      int col[kCols];
      E sum[kCols];
      LINALG_UNROLL
      for (int c = 0; c < kCols; ++c) {
        const int at = first + c * matrix.width;
        col[c] = at < n ? at : first;
        sum[c] = E{};
      }
      LINALG_UNROLL_BY(4)
      for (int i = begin + group; i < n; i += matrix.groups) {
        const E ui = work.u[i];
        LINALG_UNROLL
        for (int c = 0; c < kCols; ++c) sum[c] = ConjMulAdd(memory.Matrix(i, col[c]), ui, sum[c]);
      }
      LINALG_UNROLL
      for (int c = 0; c < kCols; ++c) work.products[group * n + col[c]] = sum[c];
    }
    const int lane = panel.Across(thread);
    for (int row = panel.Group(thread); row < 2 * done; row += panel.groups) {
      const int l = row < done ? row : cols + row - done;
      E sum{};
      LINALG_UNROLL_BY(4)
      for (int i = begin + lane; i < n; i += panel.width) {
        sum = NegMulAdd(-memory.Panel(l, i), work.u[i], sum);
      }
      work.sums[row * (kPanelLanes + 1) + lane] = sum;
    }
  });
  team.Phase([&](int thread) {
    for (int row = thread; row < 2 * done; row += team.size()) {
      const E* const sums = work.sums + row * (kPanelLanes + 1);
      E sum = sums[0];
      for (int lane = 1; lane < panel.width; ++lane) sum = sum + sums[lane];
      work.z[row] = sum;
    }
  });
}

// Reduces columns [first, first + cols) of a matrix of norm near 1. `memory` has
//
//   Matrix(i, j)          its elements, which may have changed in rows before `first`
//   SetReflector(k, i, x) conj(v) of reflector k in row k of the matrix, for i from `first` on
//   Panel(l, i)           elements of 2 cols rows: those of Vᴴ, then those of Wᴴ
//   SetPanel(l, i, x)
//   SetDiagonal(k, x), SetBeside(k, x)   the tridiagonal form
//
// The reflectors' product is I - V T Vᴴ, with T in work.t.
template <class Team, class E, class Memory>
LINALG_TEAM void ReducePanel(const Team& team, int n, int first, int cols, const Memory& memory,
                             const ReductionPanelWork<E>& work) {
  using V = RealElement<E>;
  const int left = ReflectorCount<E>(n) - first;
  const int reflectors = left < 0 ? 0 : left < cols ? left : cols;
  const Grid groups(team.size(), kMatrixLanes);
  for (int j = 0; j < cols; ++j) {
    const int k = first + j, done = j < reflectors ? j : reflectors;
    // Column k, with the changes of the panel's reflectors so far.
    const V rest = team.template Sum<V>([&](int thread) {
      V squares{};
      for (int i = k + thread; i < n; i += team.size()) {
        E x = memory.Matrix(k, i);
        LINALG_UNROLL_BY(4)
        for (int l = 0; l < done; ++l) {
          x = NegMulAdd(memory.Panel(l, i), Conj(memory.Panel(cols + l, k)), x);
          x = NegMulAdd(memory.Panel(cols + l, i), Conj(memory.Panel(l, k)), x);
        }
        x = Conj(x);
        work.u[i] = x;
        if (i == k) memory.SetDiagonal(k, Re(x));
        if (i == k + 1) work.head[0] = x;
        if (i > k + 1) squares = NormAdd(x, squares);
      }
      return squares;
    });
    if (k + 1 == n) break;
    const E alpha = work.head[0];
    if (j >= reflectors) {
      // The update has all columns of the panel.
      team.Phase([&](int thread) {
        if (thread == 0) memory.SetBeside(k, Re(alpha));
        for (int i = k + 1 + thread; i < n; i += team.size()) {
          memory.SetPanel(j, i, E{});
          memory.SetPanel(cols + j, i, E{});
        }
      });
      continue;
    }
    const TridiagonalScale<E> made(alpha, rest);
    team.Phase([&](int thread) {
      for (int i = first + thread; i < n; i += team.size()) {
        E x{};
        if (i == k + 1) x = FromReal<E>(V(1));
        if (i > k + 1) x = Mul(made.scale, work.u[i]);
        if (i > k) work.u[i] = x;
        memory.SetPanel(j, i, Conj(x));
        memory.SetReflector(k, i, Conj(x));
      }
      if (thread != 0) return;
      memory.SetBeside(k, made.beside);
      work.taus[j] = made.tau;
    });
    MultiplyByReflector(team, n, k + 1, done, cols, memory, work);
    // A u with the changes of the panel's reflectors so far.
    const V dot = team.template Sum<V>([&](int thread) {
      V sum{};
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        E x = work.products[i];
        for (int g = 1; g < groups.groups; ++g) x = x + work.products[g * n + i];
        LINALG_UNROLL_BY(4)
        for (int l = 0; l < done; ++l) {
          x = NegMulAdd(Conj(memory.Panel(l, i)), work.z[done + l], x);
          x = NegMulAdd(Conj(memory.Panel(cols + l, i)), work.z[l], x);
        }
        work.products[i] = x;
        sum = RealDotAdd(work.u[i], x, sum);
      }
      for (int l = thread; l < done; l += team.size()) work.t[j * work.ldt + l] = work.z[l];
      return sum;
    });
    const V c = ReflectedShare(made.tau, dot);
    team.Phase([&](int thread) {
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        memory.SetPanel(cols + j, i, Conj(NegMulAdd(-made.tau, work.products[i], c * work.u[i])));
      }
    });
  }
  PanelTriangle(team, reflectors,
                PanelWork<E>{.taus = work.taus,
                             .inverses = nullptr,
                             .partial = nullptr,
                             .squares = nullptr,
                             .t = work.t,
                             .ldt = work.ldt});
}

}  // namespace linalg::team
