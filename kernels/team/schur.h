// Schur form of general matrices by a team of threads, A = Z T Zᴴ: Hessenberg form, then the QR
// iteration with implicit shifts and with LAPACK's criteria (lahqr; Golub and Van Loan, Matrix
// Computations, 4th ed., 7.5). Real matrices take two shifts at a time, so that T is real, with
// blocks of order 2 as LAPACK has them. A step moves the bulge by a reflector of three elements, or
// two, which every thread makes for itself; they share the columns and the rows that it changes.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/norm.h"
#include "kernels/arithmetic/reflector.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/team/balance.h"
#include "kernels/team/hessenberg.h"
#include "kernels/team/largest.h"

namespace linalg::team {

// What Schur works in.
template <class E>
struct SchurWork {
  E* z;  // 1 + n ld elements; the operand from the second of them on, Z in the end
  E* t;  // n ld, if Z is wanted; else T's diagonal blocks take the operand's place
  int ld;
  E* taus;     // n
  E* partial;  // one for each thread

  LINALG_INLINE E* Operand() const { return z + 1; }
};

// LAPACK's limit of steps, times n.
inline constexpr int kSchurSteps = 30;

// Rows that a step of the bulge changes.
template <class E>
inline constexpr int kBulge = kComplexElement<E> ? 2 : 3;

template <class V>
LINALG_TEAM V Largest3(V x, V y, V z) {
  const V larger = x > y ? x : y;
  return larger > z ? larger : z;
}

// The principal square root of numbers whose squares are in range.
template <class V>
LINALG_TEAM Complex<V> ComplexSqrt(Complex<V> x) {
  const V length = Sqrt(NormAdd(x, V(0)));
  const V root = Sqrt((length + Abs(x.re)) / V(2));
  if (!(root > V(0))) return {V(0), V(0)};
  const V other = x.im / (V(2) * root);
  return x.re >= V(0) ? Complex<V>{root, other} : Complex<V>{Abs(other), CopySign(root, x.im)};
}

// The rotation that brings [[a, b], [c, d]] to the standard form of a real Schur block, which takes
// its place: upper triangular, or a = d and b c < 0 (LAPACK's lanv2). As cosine and sine.
template <class V>
LINALG_TEAM Complex<V> StandardiseBlock(V& a, V& b, V& c, V& d) {
  const V eps = std::numeric_limits<V>::epsilon();
  if (c == V(0)) return {V(1), V(0)};
  if (b == V(0)) {
    const V swapped = d;
    d = a;
    a = swapped;
    b = -c;
    c = V(0);
    return {V(0), V(1)};
  }
  const V gap = a - d;
  if (gap == V(0) && (b < V(0)) != (c < V(0))) return {V(1), V(0)};
  const V half = gap / V(2), size_b = Abs(b), size_c = Abs(c);
  const V larger = size_b > size_c ? size_b : size_c;
  const V smaller = CopySign(size_b > size_c ? size_c : size_b, b) * CopySign(V(1), c);
  const V scale = Abs(half) > larger ? Abs(half) : larger;
  const V square = (half / scale) * half + (larger / scale) * smaller;
  V cosine, sine;
  if (square >= V(4) * eps) {
    // Two real eigenvalues.
    const V z = half + CopySign(Sqrt(scale) * Sqrt(square), half);
    a = d + z;
    d = d - (larger / z) * smaller;
    const V size = Abs(z) > size_c ? Abs(z) : size_c;
    const V p = z / size, q = c / size, length = Sqrt(MulAdd(p, p, q * q));
    cosine = p / length;
    sine = q / length;
    b = b - c;
    c = V(0);
    return {cosine, sine};
  }
  // A pair, or real ones that are almost equal: makes the diagonal elements equal.
  const V sum = b + c;
  const V size = Abs(gap) > Abs(sum) ? Abs(gap) : Abs(sum);
  const V p = gap / size, q = sum / size, length = Sqrt(MulAdd(p, p, q * q));
  cosine = Sqrt((V(1) + Abs(q) / length) / V(2));
  sine = -(p / V(2) / (length * cosine)) * CopySign(V(1), q);
  const V aa = a * cosine + b * sine, bb = b * cosine - a * sine;
  const V cc = c * cosine + d * sine, dd = d * cosine - c * sine;
  a = aa * cosine + cc * sine;
  b = bb * cosine + dd * sine;
  c = cc * cosine - aa * sine;
  d = dd * cosine - bb * sine;
  a = d = (a + d) / V(2);
  if (c == V(0)) return {cosine, sine};
  if (b == V(0)) {
    b = -c;
    c = V(0);
    return {-sine, cosine};
  }
  if ((b < V(0)) != (c < V(0))) return {cosine, sine};
  const V root_b = Sqrt(Abs(b)), root_c = Sqrt(Abs(c));
  const V shift = CopySign(root_b * root_c, c), over = V(1) / Sqrt(Abs(b + c));
  d = a - shift;
  a = a + shift;
  b = b - c;
  c = V(0);
  const V other_cosine = root_b * over, other_sine = root_c * over;
  return {cosine * other_cosine - sine * other_sine, cosine * other_sine + sine * other_cosine};
}

// x := (I - tau v vᴴ) x for `count` elements, `stride` apart, v's first element being 1.
template <class E>
LINALG_TEAM void ApplyBulge(int count, E tau, const E* v, E* x, int stride) {
  E sum = x[0];
  for (int i = 1; i < kBulge<E>; ++i) {
    if (i < count) sum = NegMulAdd(-Conj(v[i]), x[i * stride], sum);
  }
  sum = Mul(tau, sum);
  x[0] = x[0] - sum;
  for (int i = 1; i < kBulge<E>; ++i) {
    if (i < count) x[i * stride] = NegMulAdd(v[i], sum, x[i * stride]);
  }
}

// The reflector with Hᴴ x = beta e₁, H = I - tau v vᴴ: v takes the place of x, whose elements from
// `count` on are zero. Returns tau.
template <class E>
LINALG_TEAM E MakeBulgeReflector(E* x, RealElement<E>& beta) {
  using V = RealElement<E>;
  V size = V(0);
  for (int i = 0; i < kBulge<E>; ++i) {
    size = Magnitude(x[i]) > size ? Magnitude(x[i]) : size;
  }
  // Subnormal numbers have no inverse; they are of no account in a matrix of norm 1.
  const V scale = size > std::numeric_limits<V>::min() ? V(1) / size : V(0);
  // What is so small that its square is zero is reflected too: the iteration goes on until it is
  // negligible.
  V tail = V(0);
  bool nothing = true;
  for (int i = 0; i < kBulge<E>; ++i) {
    x[i] = scale * x[i];
    if (i == 0) continue;
    tail = NormAdd(x[i], tail);
    nothing = nothing && Magnitude(x[i]) == V(0);
  }
  const E alpha = x[0];
  if constexpr (kComplexElement<E>) nothing = nothing && alpha.im == V(0);
  beta = size * Re(alpha);
  if (nothing) {
    for (int i = 0; i < kBulge<E>; ++i) x[i] = E{};
    return E{};
  }
  const V length = -CopySign(Sqrt(NormAdd(alpha, tail)), Re(alpha));
  beta = size * length;
  const auto [tau, inverse] = ReflectorScale<E>(alpha, length);
  for (int i = 1; i < kBulge<E>; ++i) x[i] = Mul(inverse, x[i]);
  return tau;
}

// The QR iteration on a Hessenberg matrix h of norm near 1.
template <bool kVectors, class Team, class E>
class QrIteration {
  using V = RealElement<E>;
  using Shift = Complex<V>;
  static constexpr bool kComplex = kComplexElement<E>;

 public:
  // With kVectors, all of T is made and z is multiplied by the reflectors; else T's diagonal blocks
  // alone.
  LINALG_TEAM QrIteration(const Team& team, int n, E* h, int ld, E* z)
      : team_(team), n_(n), ld_(ld), h_(h), z_(z) {}

  // Returns 0, or the 1-based index of the last row of the block that did not converge.
  LINALG_TEAM int Run() const {
    const int limit = kSchurSteps * (n_ > 10 ? n_ : 10);
    int end = n_ - 1, since = 0;
    for (int step = 0; step < limit && end >= 0; ++step) {
      const int first = BlockBegin(end);
      if (first > end - (kBulge<E> - 1)) {
        Deflate(first, end);
        end = first - 1;
        since = 0;
      } else {
        ++since;
        Sweep(first, end, ChooseShift(first, end, since));
      }
    }
    return end + 1;
  }

 private:
  LINALG_TEAM E& At(int i, int j) const { return h_[i * ld_ + j]; }
  LINALG_TEAM V Size(int i, int j) const { return Magnitude(At(i, j)); }

  // Whether the element below the diagonal in row k is negligible (Ahues and Tisseur, A new
  // deflation criterion for the QR algorithm, 1997).
  LINALG_TEAM bool IsNegligible(int k) const {
    const V eps = std::numeric_limits<V>::epsilon();
    const V least = std::numeric_limits<V>::min() * (static_cast<V>(n_) / eps);
    const V below = Size(k, k - 1);
    if (below <= least) return true;
    V beside = Size(k - 1, k - 1) + Size(k, k);
    if (beside == V(0)) {
      if (k >= 2) beside += Size(k - 1, k - 2);
      if (k + 1 < n_) beside += Size(k + 1, k);
    }
    if (!(below <= eps * beside)) return false;
    const V above = Size(k - 1, k), gap = Magnitude(At(k - 1, k - 1) - At(k, k));
    const V more = above > below ? above : below, less = above > below ? below : above;
    const V wide = Size(k, k) > gap ? Size(k, k) : gap,
            narrow = Size(k, k) > gap ? gap : Size(k, k);
    const V sum = wide + more, limit = eps * (narrow * (wide / sum));
    return less * (more / sum) <= (limit > least ? limit : least);
  }

  // The largest k in (first, last] for which holds(k), else `first`.
  template <class Holds>
  LINALG_TEAM int LastOf(int first, int last, Holds&& holds) const {
    return team_
        .template Best<V>([&](int thread) {
          Largest<V> best{static_cast<V>(first), first};
          for (int k = first + 1 + thread; k <= last; k += team_.size()) {
            if (holds(k)) best = {static_cast<V>(k), k};
          }
          return best;
        })
        .index;
  }

  LINALG_TEAM int BlockBegin(int end) const {
    return LastOf(0, end, [&](int k) { return IsNegligible(k); });
  }

  // One eigenvalue, or the block of two.
  LINALG_TEAM void Deflate(int first, int end) const {
    Complex<V> rotation{V(1), V(0)};
    V block[4] = {};
    if constexpr (!kComplex) {
      if (first < end) {
        block[0] = At(first, first), block[1] = At(first, end);
        block[2] = At(end, first), block[3] = At(end, end);
        rotation = StandardiseBlock(block[0], block[1], block[2], block[3]);
      }
    }
    team_.Phase([&](int) {});  // every thread has read the block
    team_.Phase([&](int thread) {
      if (thread == 0 && first > 0) At(first, first - 1) = E{};
      if constexpr (!kComplex) {
        if (first == end) return;
        if (thread == 0) {
          At(first, first) = block[0], At(first, end) = block[1];
          At(end, first) = block[2], At(end, end) = block[3];
        }
        if constexpr (kVectors) {
          const auto rotate = [&](E& x, E& y) { Rotate(rotation.re, -rotation.im, x, y); };
          for (int j = end + 1 + thread; j < n_; j += team_.size())
            rotate(At(first, j), At(end, j));
          for (int i = thread; i < first; i += team_.size()) rotate(At(i, first), At(i, end));
          for (int i = thread; i < n_; i += team_.size()) {
            rotate(z_[i * ld_ + first], z_[i * ld_ + end]);
          }
        }
      }
    });
  }

  // Of a real matrix, the first of a conjugate pair, or a real one that counts twice.
  LINALG_TEAM Shift ChooseShift(int first, int end, int since) const {
    constexpr int kExceptional = 10;
    const bool exceptional = since % kExceptional == 0;
    const bool at_end = since % (2 * kExceptional) == 0;
    const int i = at_end ? end : first;
    if constexpr (kComplex) {
      if (exceptional) {
        const E base = At(i, i);
        const V size = V(0.75) * (at_end ? Size(end, end - 1) : Size(first + 1, first));
        return {base.re + size, base.im};
      }
      const E corner = At(end, end), half = V(0.5) * (At(end - 1, end - 1) - corner);
      const V size = Largest3(Magnitude(half), Size(end - 1, end), Size(end, end - 1));
      if (size == V(0)) return corner;
      const V scale = V(1) / size;
      const E x = scale * half;
      const E product = Mul(scale * At(end - 1, end), scale * At(end, end - 1));
      E y = ComplexSqrt(Mul(x, x) + product);
      if (x.re * y.re + x.im * y.im < V(0)) y = -y;
      const E sum = x + y;
      if (Magnitude(sum) == V(0)) return corner;
      return corner - size * Divisor<E>(sum).Divide(product);
    } else {
      V a, b, c, d;
      if (exceptional) {
        const V size = at_end ? Size(end, end - 1) + Size(end - 1, end - 2)
                              : Size(first + 1, first) + Size(first + 2, first + 1);
        a = d = V(0.75) * size + At(i, i);
        b = V(-0.4375) * size;
        c = size;
      } else {
        a = At(end - 1, end - 1), b = At(end - 1, end);
        c = At(end, end - 1), d = At(end, end);
      }
      const V size = Abs(a) + Abs(b) + Abs(c) + Abs(d);
      if (size == V(0)) return {V(0), V(0)};
      const V scale = V(1) / size;
      a *= scale, b *= scale, c *= scale, d *= scale;
      const V middle = (a + d) / V(2), determinant = (a - middle) * (d - middle) - b * c;
      const V root = Sqrt(Abs(determinant));
      if (determinant >= V(0)) return {size * middle, size * root};
      const V low = middle - root, high = middle + root;
      return {size * (Abs(high - d) <= Abs(low - d) ? high : low), V(0)};
    }
  }

  // The first column of the shifted matrix, or of the product of both, from row m on; scaled.
  LINALG_TEAM void StartVector(int m, Shift shift, E* v) const {
    if constexpr (kComplex) {
      const E gap = At(m, m) - shift;
      const V size = Magnitude(gap) + Size(m + 1, m);
      const V scale = size > V(0) ? V(1) / size : V(0);
      v[0] = scale * gap;
      v[1] = scale * At(m + 1, m);
    } else {
      const V gap = At(m, m) - shift.re;
      const V size = Abs(gap) + Abs(shift.im) + Size(m + 1, m);
      const V below = At(m + 1, m) / size;
      v[0] = below * At(m, m + 1) + gap * (gap / size) + shift.im * (shift.im / size);
      v[1] = below * (At(m, m) + At(m + 1, m + 1) - V(2) * shift.re);
      v[2] = below * At(m + 2, m + 1);
      const V sum = Abs(v[0]) + Abs(v[1]) + Abs(v[2]);
      const V scale = sum > std::numeric_limits<V>::min() ? V(1) / sum : V(0);
      for (int i = 0; i < 3; ++i) v[i] *= scale;
    }
  }

  // Whether the bulge may start in row m: what it disturbs below the diagonal there is negligible.
  LINALG_TEAM bool MayStart(int m, Shift shift) const {
    E v[kBulge<E>];
    StartVector(m, shift, v);
    V rest = Magnitude(v[1]);
    V beside = Size(m, m) + Size(m + 1, m + 1);
    if constexpr (!kComplex) {
      rest += Magnitude(v[2]);
      beside += Size(m - 1, m - 1);
    }
    return Size(m, m - 1) * rest <= std::numeric_limits<V>::epsilon() * Magnitude(v[0]) * beside;
  }

  LINALG_TEAM void Sweep(int first, int end, Shift shift) const {
    const int start =
        LastOf(first, end - (kBulge<E> - 1), [&](int m) { return MayStart(m, shift); });
    E v[kBulge<E>];
    StartVector(start, shift, v);
    team_.Phase([&](int thread) {  // every thread has read what it needs
      if (thread == 0 && first > 0) At(first, first - 1) = E{};
    });
    const int first_row = kVectors ? 0 : first, last_col = kVectors ? n_ - 1 : end;
    for (int k = start; k < end; ++k) {
      const int count = end - k + 1 < kBulge<E> ? end - k + 1 : kBulge<E>;
      if (k > start) {
        for (int i = 0; i < kBulge<E>; ++i) v[i] = i < count ? At(k + i, k - 1) : E{};
      }
      V beta;
      const E tau = MakeBulgeReflector(v, beta);
      team_.Phase([&](int thread) {  // rows, but for the column that the reflector was read from
        for (int j = k + thread; j <= last_col; j += team_.size()) {
          ApplyBulge(count, Conj(tau), v, &At(k, j), ld_);
        }
      });
      E conjugate[kBulge<E>];
      for (int i = 0; i < kBulge<E>; ++i) conjugate[i] = Conj(v[i]);
      team_.Phase([&](int thread) {  // columns
        const int last_row = k + kBulge<E> < end ? k + kBulge<E> : end;
        for (int i = first_row + thread; i <= last_row; i += team_.size()) {
          ApplyBulge(count, tau, conjugate, &At(i, k), 1);
        }
        if constexpr (kVectors) {
          for (int i = thread; i < n_; i += team_.size()) {
            ApplyBulge(count, tau, conjugate, z_ + i * ld_ + k, 1);
          }
        }
        if (thread != 0) return;
        if (k > start) {
          At(k, k - 1) = FromReal<E>(beta);
          for (int i = 1; i < kBulge<E>; ++i) {
            if (i < count) At(k + i, k - 1) = E{};
          }
        } else if (k > first) {
          At(k, k - 1) = Mul(FromReal<E>(V(1)) - Conj(tau), At(k, k - 1));
        }
      });
    }
  }

  const Team& team_;
  int n_, ld_;
  E* h_;
  E* z_;
};

// Makes T, in work.t, and Z, in work.z, of the operand; without kVectors T's diagonal blocks alone,
// in the operand's place. T is A's times 1 / unscale; or, if there is room for what that is, the
// balanced matrix's. Returns 0, -1 for a matrix that is not finite, or what QrIteration::Run
// returns.
template <bool kVectors, class Team, class E>
LINALG_TEAM int Schur(const Team& team, int n, const SchurWork<E>& work,
                      Balanced<RealElement<E>> balanced, RealElement<E>& unscale) {
  using V = RealElement<E>;
  E* const a = work.Operand();
  const int ld = work.ld;
  const Grid grid = RowGrid(team);
  const V largest = LargestPart<V>(team, n * n, [&](int e) { return a[e / n * ld + e % n]; });
  if (largest == std::numeric_limits<V>::infinity()) return kNotFinite;
  const V scale = PowerOfTwoScale(largest, unscale);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n,
                   [&](int i, int j) { a[i * ld + j] = scale * a[i * ld + j]; });
  });
  if (balanced.diagonal != nullptr) Balance(team, n, a, ld, balanced);
  Hessenberg(team, n, a, ld, work.taus, work.partial);
  E* const t = kVectors ? work.t : a;
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (i > j + 1) {
        t[i * ld + j] = E{};
      } else if constexpr (kVectors) {
        t[i * ld + j] = a[i * ld + j];
      }
    });
  });
  if constexpr (kVectors) {
    // Makes Q without its first row and column one column to the left of where it belongs.
    HessenbergVectors(team, n, a, ld, work.taus, work.partial);
    team.Phase([&](int thread) {
      for (int i = thread; i < n; i += team.size()) {
        work.z[i] = FromReal<E>(V(i == 0));
        if (i > 0) work.z[i * ld] = E{};
      }
    });
  }
  return QrIteration<kVectors, Team, E>(team, n, t, ld, work.z).Run();
}

}  // namespace linalg::team
