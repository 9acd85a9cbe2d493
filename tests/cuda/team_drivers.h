// The drivers of kernels/team that CUDA's jobs call, for the tests. `teams` is a SerialTeam, or the
// Threads of tests/cuda/thread_team.h. Several threads may run the body at once. It writes shared
// data in phases only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/team_size.h"
#include "kernels/team/by_rows.h"
#include "kernels/team/cholesky.h"
#include "kernels/team/divide_and_conquer.h"
#include "kernels/team/eig.h"
#include "kernels/team/eigh.h"
#include "kernels/team/gram_jacobi.h"
#include "kernels/team/hessenberg.h"
#include "kernels/team/lu.h"
#include "kernels/team/multishift.h"
#include "kernels/team/qr.h"
#include "kernels/team/qr_panel.h"
#include "kernels/team/schur.h"
#include "kernels/team/solve.h"
#include "kernels/team/svd.h"
#include "kernels/team/tridiagonal_panel.h"

namespace linalg::team {

template <class Team, class E>
void Copy(const Team& team, int count, const E* from, E* to) {
  team.Phase([&](int thread) {
    for (int i = thread; i < count; i += team.size()) to[i] = from[i];
  });
}

// to[...] = value(i, j)
template <class Team, class Value, class E>
void Write(const Team& team, int rows, int cols, const Value& value, E* to, int ld) {
  const Grid grid = RowGrid(team);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, rows, 0, cols,
                   [&](int i, int j) { to[i * ld + j] = value(i, j); });
  });
}

template <class Teams, class E>
int RunCholesky(const Teams& teams, int n, E* a, int ld, bool lower, bool symmetrize, E* factor) {
  return teams.Run([&](const auto& team) {
    const auto made =
        CholeskyFactor(team, n, a, ld, HermitianPart{.lower = lower, .symmetrize = symmetrize});
    Write(team, n, n, made, factor, ld);
    return made.info;
  });
}

template <class Teams, class E>
int RunCholeskyPanel(const Teams& teams, int rows, int n, E* a, int ld) {
  return teams.Run(
      [&](const auto& team) { return Cholesky</*kDiagonal=*/false>(team, rows, n, a, ld); });
}

template <class Teams, class E>
int RunLu(const Teams& teams, int rows, int cols, E* a, int ld, int* pivots, int* permutation,
          int* again) {
  return teams.Run([&](const auto& team) {
    const int info = Lu(team, rows, cols, a, ld, pivots, permutation);
    PivotsToPermutation(team, rows < cols ? rows : cols, pivots, rows, again);
    return info;
  });
}

template <class Teams, class E>
void RunTriangularSolve(const Teams& teams, const Triangle& triangle, int n, E* a, int ld, int cols,
                        E* b, int ldb) {
  teams.Run([&](const auto& team) {
    SolveInPasses(team, TriangularPasses(triangle), n, a, ld, cols, b, ldb);
    return 0;
  });
}

template <class Teams, class E>
void RunCholeskySolve(const Teams& teams, int n, E* factor, int ld, bool lower, int cols, E* b,
                      int ldb) {
  teams.Run([&](const auto& team) {
    SolveInPasses(team, CholeskyPasses(lower), n, factor, ld, cols, b, ldb);
    return 0;
  });
}

template <class Teams, class E>
void RunLuSolve(const Teams& teams, int n, E* lu, int ld, const int* pivots, bool transpose,
                bool conjugate, int cols, E* b, int ldb) {
  teams.Run([&](const auto& team) {
    SolveInPasses(team, LuPasses(pivots, transpose, conjugate), n, lu, ld, cols, b, ldb);
    return 0;
  });
}

template <class Teams, class E>
int RunSolve(const Teams& teams, int n, E* a, int ld, int cols, const E* b, int ldb, E* x) {
  std::vector<E> solution(n * ldb);
  std::vector<int> pivots(n), permutation(n);
  return teams.Run([&](const auto& team) {
    const auto rhs = [&](int i, int j) { return b[i * ldb + j]; };
    const auto made =
        Solve(team, n, a, ld, pivots.data(), permutation.data(), cols, rhs, solution.data(), ldb);
    Write(team, n, cols, made, x, ldb);
    return made.info;
  });
}

template <class Teams, class E>
int RunInverse(const Teams& teams, int n, E* a, int ld, E* inverse) {
  std::vector<E> solution(n * ld);
  std::vector<int> pivots(n), permutation(n);
  return teams.Run([&](const auto& team) {
    const auto made =
        Inverse(team, n, a, ld, pivots.data(), permutation.data(), solution.data(), ld);
    Write(team, n, n, made, inverse, ld);
    return made.info;
  });
}

template <class Teams, class E>
void RunDeterminant(const Teams& teams, int n, E* a, int ld, E* det, E* sign,
                    RealElement<E>* logarithm) {
  std::vector<int> pivots(n), permutation(n);
  teams.Run([&](const auto& team) {
    const auto product = Determinant(team, n, a, ld, pivots.data(), permutation.data());
    team.Phase([&](int thread) {
      if (thread != 0) return;
      *det = product.Value();
      const auto parts = product.InParts();
      *sign = parts.sign;
      *logarithm = parts.logarithm;
    });
    return 0;
  });
}

// The largest order that a warp takes here, in the shapes of CUDA's jobs. The complex128 jobs end
// at a smaller order.
template <class E>
inline constexpr int kMostOfWarp = 32 * cuda::kRowsOfThread<E>;

// How many threads of a warp take matrices of at most n rows and columns, or 0.
template <class E>
int WarpThreadsFor(int n) {
  int threads = 0;
  if (n > kMostOfWarp<E>) return threads;
  cuda::WithWarpShape<kMostOfWarp<E>>(
      n, [&](auto size) { threads = cuda::WarpShape<E, size>::kThreads; });
  return threads;
}

// Returns the info of body(team, rows, size). Each thread of a team holds `rows` rows of matrices
// of order up to `size`, one of which is n.
template <class E, class Teams, class Body>
int RunWarps(const Teams& teams, int n, Body&& body) {
  if (teams.size() != WarpThreadsFor<E>(n)) throw std::logic_error("no such team of a warp");
  int info = 0;
  cuda::WithWarpShape<kMostOfWarp<E>>(n, [&](auto size) {
    constexpr std::integral_constant<int, cuda::WarpShape<E, size>::kRows> rows;
    info = teams.Run([&](const auto& team) { return body(team, rows, size); });
  });
  return info;
}

template <class Teams, class E>
int RunRowCholesky(const Teams& teams, int n, E* a, int ld, bool lower, bool symmetrize,
                   E* factor) {
  return RunWarps<E>(teams, n, [&](const auto& team, auto count, auto size) {
    const auto made = CholeskyFactorByRows<count, size>(team, n, a, ld,
                                                        {.lower = lower, .symmetrize = symmetrize});
    Write(team, n, n, made, factor, ld);
    return made.info;
  });
}

template <class Teams, class E>
int RunRowLu(const Teams& teams, int rows, int cols, E* a, int ld, int* pivots, int* permutation,
             E* packed, ScaledProduct<E>* product) {
  std::vector<E> again(a, a + rows * ld);
  std::vector<int> order(rows);
  const int longer = std::max(rows, cols);
  return RunWarps<E>(teams, longer, [&](const auto& team, auto count, auto size) {
    const auto factors = LuByRows<count, size>(team, rows, cols, a, ld, pivots, permutation);
    Write(team, rows, cols, factors, packed, ld);
    if (rows != cols) return factors.info;
    const auto det = DeterminantByRows<count, size>(team, rows, again.data(), ld, order.data());
    team.Phase([&](int thread) {
      if (thread == 0) *product = det;
    });
    return factors.info;
  });
}

// One right-hand side is solved by rows, and several by columns.
template <class Teams, class E>
int RunRowSolve(const Teams& teams, int n, E* a, int ld, int cols, const E* b, int ldb, E* x) {
  std::vector<int> permutation(n);
  std::vector<E> work(n * kMostOfWarp<E>);
  std::vector<Divisor<E>> divisors(n);
  const auto no_step = [](int, int, E) {};
  const auto no_factors = [](const RowsElsewhere<E>&) {};
  return RunWarps<E>(teams, n, [&](const auto& team, auto count, auto size) {
    int info;
    if (cols == 1) {
      info = SolveByRows<count, size>(
          team, n, a, ld, permutation.data(), [&](int i) { return b[i * ldb]; },
          [&](int i, E y) { x[i * ldb] = y; });
    } else {
      info = SolveByColumns<count, size>(
          team, n, a, ld, permutation.data(), no_step, no_factors, divisors.data(), work.data(),
          cols, [&](int i, int j) { return b[i * ldb + j]; },
          [&](int i, int j, E y) { x[i * ldb + j] = y; });
    }
    team.Phase([](int) {});
    return info;
  });
}

template <class Teams, class E>
int RunRowInverse(const Teams& teams, int n, E* a, int ld, E* inverse) {
  std::vector<int> permutation(n);
  std::vector<E> work(n * kMostOfWarp<E>);
  std::vector<Divisor<E>> divisors(n);
  return RunWarps<E>(teams, n, [&](const auto& team, auto count, auto size) {
    const int info = InverseByColumns<count, size>(
        team, n, a, ld, permutation.data(), divisors.data(), work.data(), n,
        [&](int i, int j, E y) { inverse[i * ld + j] = y; });
    team.Phase([](int) {});
    return info;
  });
}

// `r` receives R, and then Q with q_cols columns replaces `a`. Pivoting is on if `order` is given.
template <class Teams, class E>
int RunQr(const Teams& teams, int m, int n, int q_cols, E* a, int ld, E* r, E* taus, int* order) {
  using V = RealElement<E>;
  std::vector<E> partial(teams.size());
  std::vector<V> norms(n), squares(teams.size());
  const QrWork<E> work{
      .taus = taus, .partial = partial.data(), .norms = norms.data(), .squares = squares.data()};
  return teams.Run([&](const auto& team) {
    Qr(team, m, n, std::min(m, n), false, order, q_cols, a, ld, work,
       [&] { Copy(team, m * ld, a, r); });
    return 0;
  });
}

// Replaces the m by n panel by R with reflectors, or reads those that are `given` with their taus.
// Writes V and U, m by n.
template <class Teams, class E>
void RunPanel(const Teams& teams, int m, int n, bool given, E* a, int ld, E* taus, E* v, E* u) {
  const int ldt = n | 1;
  std::vector<E> inverses(n), partial(teams.size()), t(n * ldt);
  std::vector<RealElement<E>> squares(teams.size());
  const PanelWork<E> work{.taus = taus,
                          .inverses = inverses.data(),
                          .partial = partial.data(),
                          .squares = squares.data(),
                          .t = t.data(),
                          .ldt = ldt};
  teams.Run([&](const auto& team) {
    if (given) {
      GivenPanel(team, m, n, a, ld, work);
    } else {
      FactorPanel(team, m, n, a, ld, work);
    }
    StorePanel(team, m, n, a, ld, work, [&](int i, int j, E x, E y) {
      v[i * n + j] = x;
      u[i * n + j] = y;
    });
    return 0;
  });
}

// `most` is how many rotations are recorded at a time.
template <class Teams, class E>
int RunEigh(const Teams& teams, int n, E* a, int ld, bool lower, bool symmetrize, bool vectors,
            int most, E* v, RealElement<E>* values) {
  using V = RealElement<E>;
  std::vector<E> w(n), product(n), taus(n);
  std::vector<double> d(n), e(n);
  V unscale{};
  const int info = teams.Run([&](const auto& team) {
    const ReductionWork<E> work{
        .a = a, .ld = ld, .w = w.data(), .product = product.data(), .taus = taus.data()};
    const HermitianPart part{.lower = lower, .symmetrize = symmetrize};
    return vectors ? ReduceHermitian<true>(team, n, part, work, d.data(), e.data(), &unscale)
                   : ReduceHermitian<false>(team, n, part, work, d.data(), e.data(), &unscale);
  });
  std::vector<V> shears(most);
  std::vector<QlSweep> sweeps(3 * n);
  const QlRecord<V> record{.shears = shears.data(),
                           .most_rotations = most,
                           .sweeps = sweeps.data(),
                           .most_sweeps = 3 * n};
  if (!vectors) {
    const QlRecord<V> none{
        .shears = nullptr, .most_rotations = 0, .sweeps = nullptr, .most_sweeps = kQlSweeps * n};
    const auto progress = RecordedQl<false>(d.data(), e.data(), n, none);
    return FinishEigvalsh(n, progress, d.data(), info, unscale, values);
  }
  const auto progress = RecordedQl<true>(d.data(), e.data(), n, record);
  std::vector<RotationPair<V>> rotations(2 * n);
  std::vector<int> order(n);
  QlProgress shared{};
  const RotationWork<E> work{
      .q = a, .ld = ld, .rotations = rotations.data(), .order = order.data(), .progress = &shared};
  return teams.Run([&](const auto& team) {
    const auto made =
        FinishEigh(team, n, work, record, progress, d.data(), e.data(), info, unscale, values);
    Write(team, n, n, made, v, ld);
    return made.info;
  });
}

// The matrix and panel of ReducePanel.
template <class E>
struct PanelMemory {
  int ld;
  E *a, *rows;
  double *d, *e;

  E Matrix(int i, int j) const { return a[i * ld + j]; }
  void SetReflector(int k, int i, E x) const { a[k * ld + i] = x; }
  E Panel(int l, int i) const { return rows[l * ld + i]; }
  void SetPanel(int l, int i, E x) const { rows[l * ld + i] = x; }
  void SetDiagonal(int k, RealElement<E> x) const { d[k] = x; }
  void SetBeside(int k, RealElement<E> x) const { e[k] = x; }
};

// Reduces a matrix of norm near 1, with both triangles, by panels of `width` columns. d and e
// receive the tridiagonal form, q the unitary matrix of it.
template <class Teams, class E>
void RunTridiagonalPanels(const Teams& teams, int n, int width, E* a, int ld, double* d, double* e,
                          E* q) {
  const int ldt = width | 1;
  std::vector<E> rows(2 * width * ld), u(n), products(ProductRows(teams.size()) * n),
      sums(2 * width * (kPanelLanes + 1)), z(2 * width), head(1), taus(width), t(width * ldt);
  const PanelMemory<E> memory{.ld = ld, .a = a, .rows = rows.data(), .d = d, .e = e};
  const ReductionPanelWork<E> work{.u = u.data(),
                                   .products = products.data(),
                                   .sums = sums.data(),
                                   .z = z.data(),
                                   .head = head.data(),
                                   .taus = taus.data(),
                                   .t = t.data(),
                                   .ldt = ldt};
  for (int i = 0; i < n * ld; ++i) q[i] = E{};
  for (int i = 0; i < n; ++i) q[i * ld + i] = FromReal<E>(RealElement<E>(1));
  for (int first = 0; first < n; first += width) {
    const int cols = std::min(width, n - first), next = first + cols;
    teams.Run([&](const auto& team) {
      ReducePanel(team, n, first, cols, memory, work);
      return 0;
    });
    for (int i = next; i < n; ++i) {
      for (int j = next; j < n; ++j) {
        E x = a[i * ld + j];
        for (int l = 0; l < 2 * cols; ++l) {
          const int other = l < cols ? cols + l : l - cols;
          x = NegMulAdd(Conj(rows[l * ld + i]), rows[other * ld + j], x);
        }
        a[i * ld + j] = x;
      }
    }
    // q := q (I - V T Vᴴ)
    const int reflectors = std::min(cols, ReflectorCount<E>(n) - first);
    if (reflectors <= 0) continue;
    std::vector<E> left(reflectors), scaled(reflectors);
    for (int i = 0; i < n; ++i) {
      for (int l = 0; l < reflectors; ++l) {
        left[l] = E{};
        for (int j = first; j < n; ++j) {
          left[l] = NegMulAdd(-q[i * ld + j], Conj(a[(first + l) * ld + j]), left[l]);
        }
      }
      for (int l = 0; l < reflectors; ++l) {
        scaled[l] = E{};
        for (int k = 0; k <= l; ++k) scaled[l] = NegMulAdd(-left[k], t[k * ldt + l], scaled[l]);
      }
      for (int l = 0; l < reflectors; ++l) {
        for (int j = first; j < n; ++j) {
          q[i * ld + j] = NegMulAdd(scaled[l], a[(first + l) * ld + j], q[i * ld + j]);
        }
      }
    }
  }
}

// Joins two halves of eigenvalues `d`, which are replaced by the joined ones, and their `vectors`,
// by the element rho. `joined` receives the vectors.
template <class Teams, class V>
int RunMerge(const Teams& teams, int half, double rho, double* d, const V* vectors, V* joined) {
  const int size = 2 * half;
  std::vector<double> poles(size), z(size), exact(size), values(size), unsorted(size), sorted(size),
      weights(size);
  std::vector<int> row(size), source(size), rows(size);
  std::vector<MergeRotation> rotations(size);
  std::vector<SecularRoot> roots(size);
  std::vector<V> update(size * size);
  Merge::Counts counts{};
  const Merge merge{.size = size,
                    .poles = poles.data(),
                    .z = z.data(),
                    .exact = exact.data(),
                    .row = row.data(),
                    .rotations = rotations.data(),
                    .counts = &counts,
                    .roots = roots.data(),
                    .joined = unsorted.data(),
                    .values = values.data(),
                    .source = source.data()};
  const DeflationWork work{.d = sorted.data(), .z = weights.data(), .row = rows.data()};
  const V* const last = vectors + half * half - half;
  const auto weight = [&](int r) -> double { return r >= half && rho < 0 ? -last[r] : last[r]; };
  teams.Run([&](const auto& team) {
    Deflate(team, Abs(rho), d, weight, merge, work);
    team.Phase([&](int thread) {
      for (int j = thread; j < size; j += team.size()) JoinEigenvalue(merge, Abs(rho), j);
    });
    team.Phase([&](int thread) {
      for (int j = thread; j < size; j += team.size()) PlaceEigenvalue(merge, j);
    });
    team.Phase([&](int thread) {
      for (int j = thread; j < size; j += team.size()) MergeColumn(merge, j, update.data());
    });
    return 0;
  });
  std::copy(values.begin(), values.end(), d);
  for (int i = 0; i < size; ++i) {
    const V* const own = vectors + i * half;
    const V* const part = update.data() + (i < half ? 0 : half * size);
    for (int j = 0; j < size; ++j) {
      V sum{};
      for (int k = 0; k < half; ++k) sum = MulAdd(own[k], part[k * size + j], sum);
      joined[i * size + j] = sum;
    }
  }
  return counts.kept;
}

template <class Teams, class E>
int RunHessenberg(const Teams& teams, int n, E* a, int ld, E* h, E* q) {
  std::vector<E> taus(n), partial(teams.size());
  return teams.Run([&](const auto& team) {
    Hessenberg(team, n, a, ld, taus.data(), partial.data());
    Write(team, n, n, HessenbergForm<E>{a, ld}, h, ld);
    HessenbergVectors(team, n, a, ld, taus.data(), partial.data());
    Write(team, n, n, HessenbergBasis<E>{a, ld}, q, ld);
    return 0;
  });
}

// U replaces the first `width` columns of `a`; v is n by n.
template <class Teams, class E>
int RunSvd(const Teams& teams, int m, int n, int width, bool vectors, E* a, int ld, E* v,
           RealElement<E>* values) {
  std::vector<ColumnSums<E>> sums(teams.size());
  std::vector<RealElement<E>> norms(n);
  std::vector<int> order(n);
  std::vector<E> taus(n), partial(teams.size());
  const SvdWork<E> work{.a = a,
                        .ld = ld,
                        .v = v,
                        .ldv = n,
                        .sums = sums.data(),
                        .values = values,
                        .norms = norms.data(),
                        .order = order.data(),
                        .taus = taus.data(),
                        .partial = partial.data()};
  return teams.Run([&](const auto& team) {
    return vectors ? Svd<true>(team, m, n, width, work).info
                   : Svd<false>(team, m, n, width, work).info;
  });
}

// `gram` and `rotation` have rows `ld` apart.
template <class Teams, class E>
int RunGram(const Teams& teams, int n, int sweeps, E* gram, int ld, E* rotation) {
  using V = RealElement<E>;
  std::vector<GramRotation<E>> rotations(n / 2);
  const GramWork<E> work{
      .gram = gram, .rotation = rotation, .ld = ld, .rotations = rotations.data()};
  return teams.Run([&](const auto& team) {
    return int{RotateGram(team, n, JacobiTolerance<V>(n), sweeps, work)};
  });
}

// The workspace of Schur, with the operand in place.
template <class E>
struct SchurMemory {
  SchurMemory(int team_size, int n, const E* a, int ld)
      : taus(n), partial(team_size), shifted(n * ld + 1), form(n * ld), ld(ld) {
    std::copy(a, a + n * ld, shifted.begin() + 1);
  }

  SchurWork<E> Work() {
    return {.z = shifted.data(),
            .t = form.data(),
            .ld = ld,
            .taus = taus.data(),
            .partial = partial.data()};
  }

  std::vector<E> taus, partial, shifted, form;
  int ld;
};

// run(iteration) with windows of so many rows, or with the plain iteration for 0.
template <int kRows, class E, class Run>
int WithIteration(int team_size, Run&& run) {
  if constexpr (kRows == 0) {
    return run(PlainIteration());
  } else {
    std::vector<E> memory(MultishiftWork<E, kRows>::Elements(team_size));
    return run(MultishiftIteration<E, kRows>{.work = {.memory = memory.data()}});
  }
}

template <int kRows = 0, class Teams, class E>
int RunSchur(const Teams& teams, int n, const E* a, int ld, E* t, E* z) {
  SchurMemory<E> memory(teams.size(), n, a, ld);
  const SchurWork<E> work = memory.Work();
  return WithIteration<kRows, E>(teams.size(), [&](const auto& iteration) {
    return teams.Run([&](const auto& team) {
      const auto made = SchurFactors(team, n, work, iteration);
      Write(team, n, n, made.form, t, ld);
      Write(team, n, n, made.vectors, z, ld);
      return made.info;
    });
  });
}

template <int kRows = 0, class Teams, class E>
int RunEig(const Teams& teams, int n, const E* a, int ld, bool vectors,
           Complex<RealElement<E>>* values, Complex<RealElement<E>>* left,
           Complex<RealElement<E>>* right) {
  using V = RealElement<E>;
  SchurMemory<E> memory(teams.size(), n, a, ld);
  const SchurWork<E> work = memory.Work();
  std::vector<Complex<V>> x(n * ld);
  std::vector<V> diagonal(n);
  std::vector<int> places(n);
  const Balanced<V> balanced{diagonal.data(), places.data()};
  return WithIteration<kRows, E>(teams.size(), [&](const auto& iteration) {
    return teams.Run([&](const auto& team) {
      return vectors
                 ? Eig<true>(team, n, work, iteration, balanced, x.data(), values, left, right)
                 : Eig<false>(team, n, work, iteration, balanced, x.data(), values, left, right);
    });
  });
}

}  // namespace linalg::team
