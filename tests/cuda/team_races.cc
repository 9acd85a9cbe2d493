// Runs the algorithms of kernels/team on a team of concurrent threads, for ThreadSanitizer.
// LINALG_TEST_ELEMENT is the matrices' element type. The results are compared with those of threads
// that run one after another, which tests/cuda/phases verifies.
//
//   team_races          runs code without races
//   team_races --race   runs code with one race
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/cuda/serial_team.h"
#include "tests/cuda/team_drivers.h"
#include "tests/cuda/thread_team.h"

namespace linalg::team {
namespace {

using E = LINALG_TEST_ELEMENT;
using V = RealElement<E>;
using C = Complex<V>;

enum class Kind : int {
  kGeneral,
  kDefinite,
  kZero,
  kIdentity,
  kCyclic,  // does not change until an exceptional shift
  kPairs,   // pairs of eigenvalues
  kRankOne,
  kUnbalanced,
  kLower,  // each of its rows isolates an eigenvalue
  kHuge,
  kTiny,
  kNaN,
  kInfinite,
};
constexpr Kind kLastKind = Kind::kInfinite;

// Rows are an odd number of elements apart, as in shared memory.
int LdOf(int cols) { return cols | 1; }

template <class X, class Draw>
X Element(Draw&& draw) {
  if constexpr (kComplexElement<X>) {
    const auto re = draw();
    return {re, draw()};
  } else {
    return draw();
  }
}

std::vector<E> Matrix(Kind kind, int rows, int cols) {
  using Limits = std::numeric_limits<V>;
  const int ld = LdOf(cols);
  std::mt19937 random(7 * rows + cols);
  std::uniform_real_distribution<V> between(V(-1), V(1));
  std::vector<E> a(rows * ld);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      E x = Element<E>([&] { return between(random); });
      const bool last = i == rows - 1 && j == cols - 1;
      const auto real = [](V y) { return FromReal<E>(y); };
      switch (kind) {
        case Kind::kGeneral:
          break;
        case Kind::kDefinite:
          if (i == j) x = real(V(4 * rows));
          break;
        case Kind::kZero:
          x = E{};
          break;
        case Kind::kIdentity:
          x = real(V(i == j));
          break;
        case Kind::kCyclic:
          x = real(V(j == (i + 1) % cols));
          break;
        case Kind::kPairs:
          x = real((i ^ 1) == j ? V(j - i) : V(0));
          break;
        case Kind::kRankOne:
          x = V(j + 1) * real(V(i % 3 - 1));
          break;
        case Kind::kUnbalanced:
          x = std::ldexp(V(1), 3 * (i - j)) * x;
          break;
        case Kind::kLower:
          if (j > i) x = E{};
          break;
        case Kind::kHuge:
          x = Limits::max() / V(1024) * x;
          break;
        case Kind::kTiny:
          x = Limits::min() * V(1024) * x;
          break;
        case Kind::kNaN:
          if (last) x = real(Limits::quiet_NaN());
          break;
        case Kind::kInfinite:
          if (last) x = real(Limits::infinity());
          break;
      }
      a[i * ld + j] = x;
    }
  }
  return a;
}

// Collects all numbers that a run computes.
class Results {
 public:
  void Add(int x) { numbers_.push_back(x); }
  void Add(V x) { numbers_.push_back(x); }
  void Add(C x) { Add(x.re), Add(x.im); }
  template <class X>
  void Add(const std::vector<X>& xs) {
    for (const X& x : xs) Add(x);
  }

  bool operator==(const Results& other) const {
    if (numbers_.size() != other.numbers_.size()) return false;
    for (size_t i = 0; i < numbers_.size(); ++i) {
      const double x = numbers_[i], y = other.numbers_[i];
      if (!(x == y || (x != x && y != y))) return false;
    }
    return true;
  }

 private:
  std::vector<double> numbers_;
};

// The algorithms, with their options, on a matrix of each kind and order n.

constexpr auto kTryCholesky = [](const auto& teams, Kind kind, int n, Results& results) {
  for (const bool lower : {false, true}) {
    for (const bool symmetrize : {false, true}) {
      auto a = Matrix(kind, n, n), factor = a;
      results.Add(RunCholesky(teams, n, a.data(), LdOf(n), lower, symmetrize, factor.data()));
      results.Add(a), results.Add(factor);
    }
  }
  const int cols = n / kPanel<E> * kPanel<E>;
  auto panel = Matrix(kind, n, n);
  results.Add(RunCholeskyPanel(teams, n, cols, panel.data(), LdOf(n)));
  results.Add(panel);
};

constexpr auto kTryLu = [](const auto& teams, Kind kind, int n, Results& results) {
  for (const auto& [rows, cols] : {std::pair(n, n), {n + 5, n}, {n, n + 5}}) {
    auto a = Matrix(kind, rows, cols);
    std::vector<int> pivots(n), permutation(rows), again(rows);
    results.Add(RunLu(teams, rows, cols, a.data(), LdOf(cols), pivots.data(), permutation.data(),
                      again.data()));
    results.Add(a), results.Add(pivots), results.Add(permutation), results.Add(again);
  }
};

constexpr auto kTrySubstitution = [](const auto& teams, Kind kind, int n, Results& results) {
  std::vector<int> pivots(n);
  for (int i = 0; i < n; ++i) pivots[i] = (i * 5 + 3) % (n + 1);  // n exchanges nothing
  const auto add = [&](auto&& solve) {
    for (const int cols : {1, 7}) {
      auto a = Matrix(kind, n, n), b = Matrix(Kind::kGeneral, n, cols);
      solve(a.data(), cols, b.data());
      results.Add(a), results.Add(b);
    }
  };
  for (int options = 0; options < 16; ++options) {
    const auto option = [&](int bit) { return (options >> bit & 1) != 0; };
    add([&](E* a, int cols, E* b) {
      const Triangle triangle{.lower = option(0),
                              .transpose = option(1),
                              .conjugate = option(2),
                              .unit_diagonal = option(3)};
      RunTriangularSolve(teams, triangle, n, a, LdOf(n), cols, b, LdOf(cols));
    });
  }
  for (const bool flag : {false, true}) {
    add([&](E* a, int cols, E* b) {
      RunCholeskySolve(teams, n, a, LdOf(n), flag, cols, b, LdOf(cols));
    });
    for (const bool conjugate : {false, true}) {
      add([&](E* a, int cols, E* b) {
        RunLuSolve(teams, n, a, LdOf(n), pivots.data(), flag, conjugate, cols, b, LdOf(cols));
      });
    }
  }
};

constexpr auto kTrySolve = [](const auto& teams, Kind kind, int n, Results& results) {
  auto a = Matrix(kind, n, n), b = Matrix(Kind::kGeneral, n, 7), x = b;
  results.Add(RunSolve(teams, n, a.data(), LdOf(n), 7, b.data(), LdOf(7), x.data()));
  results.Add(a), results.Add(x);
  a = Matrix(kind, n, n);
  auto inverse = a;
  results.Add(RunInverse(teams, n, a.data(), LdOf(n), inverse.data()));
  results.Add(inverse);
  a = Matrix(kind, n, n);
  E det{}, sign{};
  V logarithm{};
  RunDeterminant(teams, n, a.data(), LdOf(n), &det, &sign, &logarithm);
  results.Add(det), results.Add(sign), results.Add(logarithm);
};

constexpr auto kTryRows = [](const auto& teams, Kind kind, int n, Results& results) {
  auto a = Matrix(kind, n, n), factor = a;
  results.Add(RunRowCholesky(teams, n, a.data(), LdOf(n), true, true, factor.data()));
  results.Add(factor);
  for (const auto& [rows, cols] : {std::pair(n, n), {n + 5, n}, {n, n + 5}}) {
    auto given = Matrix(kind, rows, cols), packed = given;
    std::vector<int> pivots(n), permutation(rows);
    ScaledProduct<E> det;
    results.Add(RunRowLu(teams, rows, cols, given.data(), LdOf(cols), pivots.data(),
                         permutation.data(), packed.data(), &det));
    results.Add(packed), results.Add(pivots), results.Add(permutation), results.Add(det.product);
  }
  for (const int cols : {1, 7, 20}) {
    a = Matrix(kind, n, n);
    auto b = Matrix(Kind::kGeneral, n, cols), x = b;
    results.Add(RunRowSolve(teams, n, a.data(), LdOf(n), cols, b.data(), LdOf(cols), x.data()));
    results.Add(x);
  }
  a = Matrix(kind, n, n);
  auto inverse = a;
  results.Add(RunRowInverse(teams, n, a.data(), LdOf(n), inverse.data()));
  results.Add(inverse);
};

constexpr auto kTryQr = [](const auto& teams, Kind kind, int n, Results& results) {
  for (const auto& [m, cols] : {std::pair(n, n), {n + 5, n}, {n, n + 5}}) {
    for (const bool pivoting : {false, true}) {
      const int width = m > cols ? m : cols;  // has space for all of Q
      auto a = Matrix(kind, m, width), r = a;
      std::vector<E> taus(n);
      std::vector<int> order(cols);
      RunQr(teams, m, cols, m, a.data(), LdOf(width), r.data(), taus.data(),
            pivoting ? order.data() : nullptr);
      results.Add(a), results.Add(r), results.Add(taus), results.Add(order);
    }
  }
};

constexpr auto kTryPanel = [](const auto& teams, Kind kind, int n, Results& results) {
  // A team has at least a thread for each column.
  const int cols = n < teams.size() ? n : teams.size();
  for (const int m : {cols, n + 5}) {
    auto a = Matrix(kind, m, cols);
    std::vector<E> taus(cols), v(m * cols), u(m * cols);
    for (const bool given : {false, true}) {
      RunPanel(teams, m, cols, given, a.data(), LdOf(cols), taus.data(), v.data(), u.data());
      results.Add(a), results.Add(taus), results.Add(v), results.Add(u);
    }
  }
};

constexpr auto kTryEigh = [](const auto& teams, Kind kind, int n, Results& results) {
  // 0 is without vectors. Otherwise that many rotations are recorded.
  for (const int most : {0, n, n * n}) {
    auto a = Matrix(kind, n, n);
    std::vector<E> v(a.size());
    std::vector<V> values(n);
    const bool vectors = most > 0;
    results.Add(RunEigh(teams, n, a.data(), LdOf(n), true, vectors, vectors, most, v.data(),
                        values.data()));
    results.Add(a), results.Add(v), results.Add(values);
  }
};

constexpr auto kTryTridiagonalPanels = [](const auto& teams, Kind kind, int n, Results& results) {
  auto a = Matrix(kind, n, n), q = a;
  std::vector<double> d(n), e(n);
  const int width = n > 4 ? 4 : 2;
  RunTridiagonalPanels(teams, n, width, a.data(), LdOf(n), d.data(), e.data(), q.data());
  results.Add(a), results.Add(q);
  for (int i = 0; i + 1 < n; ++i)
    results.Add(static_cast<V>(d[i])), results.Add(static_cast<V>(e[i]));
};

// Pairs of equal eigenvalues deflate by rotations.
constexpr auto kTryMerge = [](const auto& teams, Kind, int n, Results& results) {
  std::vector<double> d(2 * n);
  std::vector<V> vectors(2 * n * n), joined(4 * n * n);
  for (int i = 0; i < 2 * n; ++i) d[i] = i % n / 2;
  for (int i = 0; i < 2 * n * n; ++i) vectors[i] = V(i * 7 % 5 - 2) / 4;
  results.Add(RunMerge(teams, n, -0.5, d.data(), vectors.data(), joined.data()));
  results.Add(joined);
};

constexpr auto kTrySvd = [](const auto& teams, Kind kind, int n, Results& results) {
  for (const int m : {n, n + 5}) {
    for (const int width : {0, n, m}) {  // 0 is without vectors; otherwise that many
      auto a = Matrix(kind, m, m);       // has space for a wide U
      std::vector<E> v(n * n);
      std::vector<V> values(n);
      results.Add(
          RunSvd(teams, m, n, width, width > 0, a.data(), LdOf(m), v.data(), values.data()));
      results.Add(a), results.Add(v), results.Add(values);
    }
  }
};

constexpr auto kTryGram = [](const auto& teams, Kind kind, int n, Results& results) {
  const int rows = n + n % 2;
  auto gram = Matrix(kind, rows, rows), rotation = gram;
  results.Add(RunGram(teams, rows, 2, gram.data(), LdOf(rows), rotation.data()));
  results.Add(gram), results.Add(rotation);
};

constexpr auto kTryHessenberg = [](const auto& teams, Kind kind, int n, Results& results) {
  auto a = Matrix(kind, n, n), h = a, q = a;
  RunHessenberg(teams, n, a.data(), LdOf(n), h.data(), q.data());
  results.Add(h), results.Add(q);
};

constexpr auto kTrySchur = [](const auto& teams, Kind kind, int n, Results& results) {
  const auto a = Matrix(kind, n, n);
  auto t = a, z = a;
  results.Add(RunSchur(teams, n, a.data(), LdOf(n), t.data(), z.data()));
  results.Add(t), results.Add(z);
};

constexpr auto kTryEig = [](const auto& teams, Kind kind, int n, Results& results) {
  for (const bool vectors : {false, true}) {
    const auto a = Matrix(kind, n, n);
    std::vector<C> values(n), left(n * n), right(n * n);
    results.Add(
        RunEig(teams, n, a.data(), LdOf(n), vectors, values.data(), left.data(), right.data()));
    results.Add(values), results.Add(left), results.Add(right);
  }
};

// Windows of 8 rows, for complex matrices.
constexpr auto kTryMultishift = [](const auto& teams, Kind kind, int n, Results& results) {
  if constexpr (kComplexElement<E>) {
    const auto a = Matrix(kind, n, n);
    auto t = a, z = a;
    results.Add(RunSchur<8>(teams, n, a.data(), LdOf(n), t.data(), z.data()));
    results.Add(t), results.Add(z);
  }
};

// Runs on a part of a warp and, if possible, on two warps, which use order `large`.
template <class Try>
void Check(const char* name, std::optional<int> large, const Try& try_on, int part = 4) {
  const auto check = [&](int size, Kind kind, int n) {
    Results serial, threads;
    try_on(SerialTeam(size, Order::kForward), kind, n, serial);
    try_on(Threads(size), kind, n, threads);
    if (serial == threads) return;
    std::fprintf(stderr, "%s, %d threads, order %d, kind %d: not what comes of one after another\n",
                 name, size, n, static_cast<int>(kind));
    std::exit(1);
  };
  for (int kind = 0; kind <= static_cast<int>(kLastKind); ++kind) {
    for (const int n : {1, 2, 3, 9}) check(part, Kind(kind), n);
  }
  if (large.has_value()) check(64, Kind::kGeneral, *large);
}

// Order 35 has more rows than a warp has threads. Iterative algorithms would take long there.
void CheckAll() {
  Check("cholesky", 35, kTryCholesky);
  Check("lu", 35, kTryLu);
  Check("substitution", 19, kTrySubstitution);
  Check("solve", 35, kTrySolve);
  Check("rows", std::nullopt, kTryRows, WarpThreadsFor<E>(16));
  Check("qr", 35, kTryQr);
  Check("panel", 35, kTryPanel);
  Check("eigh", 35, kTryEigh);
  Check("tridiagonal panels", 35, kTryTridiagonalPanels);
  Check("merge", 35, kTryMerge);
  Check("svd", 5, kTrySvd);
  Check("gram", 16, kTryGram);
  Check("hessenberg", 35, kTryHessenberg);
  Check("schur", 5, kTrySchur);
  Check("eig", 5, kTryEig);
  Check("multishift", 12, kTryMultishift);
}

// A barrier is missing here: every thread reads a value between two phases, and the next phase
// writes it.
int Race() {
  int shared = 0;
  return Threads(4).Run([&](const auto& team) {
    team.Phase([](int) {});
    const int read = shared;
    team.Phase([&](int thread) {
      if (thread == 0) shared = read + 1;
    });
    return read;
  });
}

}  // namespace
}  // namespace linalg::team

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--race") == 0) return linalg::team::Race();
  linalg::team::CheckAll();
}
