// The elements that algorithms compute with: one matrix per lane, or a single matrix.
//
// V is a vector register with one matrix per lane, or a plain float or double for one matrix. An
// element of a matrix is a V or a Complex<V>. Fused operations are explicit (MulAdd), never the
// compiler's choice (-ffp-contract=off). So a matrix gives the same bits in any lane of any width.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__) && !defined(__CUDACC__)
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(__CUDACC__)
#include <arm_neon.h>
#endif

// In CUDA each thread has one matrix, and V is a plain number.
#if defined(__CUDACC__)
#define LINALG_INLINE __host__ __device__ __forceinline__
#define LINALG_ONCE LINALG_INLINE
#else
#define LINALG_INLINE inline __attribute__((always_inline))
// Marks long functions with long run times. They are compiled once per file, not inlined in each
// caller.
#define LINALG_ONCE __attribute__((noinline))
#endif

namespace linalg {

template <class T, int kLanes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T))));
};
template <class T>
struct VectorOf<T, 1> {
  using Type = T;
};
// A register of kLanes floats or doubles. One lane is the plain type.
template <class T, int kLanes>
using Vector = typename VectorOf<T, kLanes>::Type;

template <class V>
struct LaneOf {
  using Type = std::remove_cvref_t<decltype(V{}[0])>;
};
template <>
struct LaneOf<float> {
  using Type = float;
};
template <>
struct LaneOf<double> {
  using Type = double;
};
template <class V>
using Lane = typename LaneOf<V>::Type;
template <class V>
inline constexpr int kLanesOf = sizeof(V) / sizeof(Lane<V>);

// The result of comparing two V: a truth value per lane.
template <class V>
using Mask = decltype(V{} < V{});

template <class V>
LINALG_INLINE V Broadcast(Lane<V> x) {
  return V{} + x;
}

// A constant or a small integer in every lane.
template <class V, class X>
LINALG_INLINE V Number(X x) {
  return Broadcast<V>(static_cast<Lane<V>>(x));
}

// The larger and the smaller of both; y where one is NaN.
template <class V>
LINALG_INLINE V Larger(V x, V y) {
  return x > y ? x : y;
}
template <class V>
LINALG_INLINE V Smaller(V x, V y) {
  return x < y ? x : y;
}

template <class M>
LINALG_INLINE bool Any(M mask) {
  if constexpr (std::is_arithmetic_v<M>) {
    return mask != 0;
#if defined(__AVX512F__)
  } else if constexpr (sizeof(M) == 64) {
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#endif
#if defined(__AVX__)
  } else if constexpr (sizeof(M) == 32) {
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#endif
  } else {
    auto any = mask[0];
    for (unsigned i = 1; i < sizeof(M) / sizeof(mask[0]); ++i) any |= mask[i];
    return any != 0;
  }
}

// This overload is for pointers with the alignment of one lane. A single lane is a plain access:
// nvcc would split the memcpy into bytes.
template <class V>
LINALG_INLINE V LoadUnaligned(const Lane<V>* source) {
  if constexpr (std::is_same_v<V, Lane<V>>) {
    return *source;
  } else {
    V x;
    std::memcpy(&x, source, sizeof(V));
    return x;
  }
}

template <class V>
LINALG_INLINE void StoreUnaligned(V x, Lane<V>* target) {
  if constexpr (std::is_same_v<V, Lane<V>>) {
    *target = x;
  } else {
    std::memcpy(target, &x, sizeof(V));
  }
}

// The lanes kPlaces of the concatenation of `low` and `high`.
template <size_t... kPlaces, class V>
LINALG_INLINE auto Shuffle(V low, V high) {
#if defined(__CUDACC__)
  static_assert(kLanesOf<V> == 0, "nvcc expands no packs here, and has no lanes to shuffle");
#else
  return __builtin_shufflevector(low, high, kPlaces...);
#endif
}

// x where the mask holds, else 0.
template <class V>
LINALG_INLINE V KeepIf(Mask<V> mask, V x) {
  return mask ? x : V{};
}

template <class V>
LINALG_INLINE V Sqrt(V x) {
  if constexpr (std::is_same_v<V, float>) {
    return __builtin_sqrtf(x);
  } else if constexpr (std::is_same_v<V, double>) {
    return __builtin_sqrt(x);
#if defined(__AVX512F__)
  } else if constexpr (sizeof(V) == 64) {
    if constexpr (sizeof(Lane<V>) == 4) return (V)_mm512_sqrt_ps((__m512)x);
    if constexpr (sizeof(Lane<V>) == 8) return (V)_mm512_sqrt_pd((__m512d)x);
#endif
#if defined(__AVX__)
  } else if constexpr (sizeof(V) == 32) {
    if constexpr (sizeof(Lane<V>) == 4) return (V)_mm256_sqrt_ps((__m256)x);
    if constexpr (sizeof(Lane<V>) == 8) return (V)_mm256_sqrt_pd((__m256d)x);
#endif
#if defined(__aarch64__) && !defined(__CUDACC__)
  } else if constexpr (sizeof(V) == 16) {
    if constexpr (sizeof(Lane<V>) == 4) return (V)vsqrtq_f32((float32x4_t)x);
    if constexpr (sizeof(Lane<V>) == 8) return (V)vsqrtq_f64((float64x2_t)x);
#endif
  } else {
    for (int i = 0; i < kLanesOf<V>; ++i) x[i] = Sqrt(x[i]);
    return x;
  }
}

// a * b + c. Rounded once where the machine has a fused instruction, else twice, for every width.
template <class V>
LINALG_INLINE V MulAdd(V a, V b, V c) {
#if defined(__FMA__) || defined(__CUDA_ARCH__) || defined(__aarch64__)
  if constexpr (std::is_same_v<V, float>) {
    return __builtin_fmaf(a, b, c);
  } else if constexpr (std::is_same_v<V, double>) {
    return __builtin_fma(a, b, c);
#if defined(__AVX512F__)
  } else if constexpr (sizeof(V) == 64) {
    if constexpr (sizeof(Lane<V>) == 4) return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    if constexpr (sizeof(Lane<V>) == 8)
      return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#endif
#if defined(__FMA__)
  } else if constexpr (sizeof(V) == 32) {
    if constexpr (sizeof(Lane<V>) == 4) return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    if constexpr (sizeof(Lane<V>) == 8)
      return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
  } else {
    if constexpr (sizeof(Lane<V>) == 4) return (V)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
    if constexpr (sizeof(Lane<V>) == 8) return (V)_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)c);
#elif defined(__aarch64__) && !defined(__CUDACC__)
  } else if constexpr (sizeof(V) == 16) {
    if constexpr (sizeof(Lane<V>) == 4)
      return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
    if constexpr (sizeof(Lane<V>) == 8)
      return (V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
  } else {
    // Code for one matrix may pass a V of several registers.
    constexpr int kPieces = sizeof(V) / 16;
    using Piece = Vector<Lane<V>, kLanesOf<V> / kPieces>;
    Piece x[kPieces], y[kPieces], z[kPieces];
    std::memcpy(x, &a, sizeof(V));
    std::memcpy(y, &b, sizeof(V));
    std::memcpy(z, &c, sizeof(V));
    for (int i = 0; i < kPieces; ++i) z[i] = MulAdd(x[i], y[i], z[i]);
    std::memcpy(&c, z, sizeof(V));
    return c;
#endif
  }
#else
  return a * b + c;
#endif
}

// Combines all lanes, by halves.
template <class V, class Combine>
LINALG_INLINE Lane<V> Reduce(V x, Combine&& combine) {
  if constexpr (kLanesOf<V> == 1) {
    return x;
  } else {
    Vector<Lane<V>, kLanesOf<V> / 2> halves[2];
    std::memcpy(halves, &x, sizeof(V));
    return Reduce(combine(halves[0], halves[1]), combine);
  }
}

// Complex numbers over V, with the operations that real ones have.
template <class V>
struct Complex {
  V re, im;
};

template <class E>
struct RealOfElement {
  using Type = E;
};
template <class V>
struct RealOfElement<Complex<V>> {
  using Type = V;
};
template <class R>
struct RealOfElement<std::complex<R>> {
  using Type = R;
};
// The real type V of an element.
template <class E>
using RealElement = typename RealOfElement<E>::Type;
template <class E>
inline constexpr bool kComplexElement = !std::is_same_v<E, RealElement<E>>;

// The count of real numbers in an element or a number.
template <class E>
inline constexpr int kPartsOf = kComplexElement<E> ? 2 : 1;

// The element for numbers T in lanes V. If V is one number, it has the layout of T.
template <class T, class V = RealElement<T>>
using Element = std::conditional_t<kComplexElement<T>, Complex<V>, V>;

template <class V>
LINALG_INLINE Complex<V> operator+(Complex<V> a, Complex<V> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class V>
LINALG_INLINE Complex<V> operator-(Complex<V> a, Complex<V> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class V>
LINALG_INLINE Complex<V> operator-(Complex<V> a) {
  return {-a.re, -a.im};
}
template <class V>
LINALG_INLINE Complex<V> operator*(V a, Complex<V> b) {
  return {a * b.re, a * b.im};
}

template <class E>
LINALG_INLINE E Conj(E a) {
  if constexpr (kComplexElement<E>) {
    return {a.re, -a.im};
  } else {
    return a;
  }
}
template <class E>
LINALG_INLINE RealElement<E> Re(E a) {
  if constexpr (kComplexElement<E>) {
    return a.re;
  } else {
    return a;
  }
}
template <class E>
LINALG_INLINE auto SumOfLanes(E x) {
  if constexpr (kComplexElement<E>) {
    return Complex<Lane<RealElement<E>>>{SumOfLanes(x.re), SumOfLanes(x.im)};
  } else {
    return Reduce(x, [](auto a, auto b) { return a + b; });
  }
}
template <class E>
LINALG_INLINE E FromReal(RealElement<E> a) {
  if constexpr (kComplexElement<E>) {
    return {a, RealElement<E>{}};
  } else {
    return a;
  }
}
template <class E>
LINALG_INLINE E Choose(Mask<RealElement<E>> mask, E a, E b) {
  if constexpr (kComplexElement<E>) {
    return {mask ? a.re : b.re, mask ? a.im : b.im};
  } else {
    return mask ? a : b;
  }
}

template <class E>
LINALG_INLINE void ExchangeWhere(Mask<RealElement<E>> mask, E& a, E& b) {
  const E x = a, y = b;
  a = Choose(mask, y, x);
  b = Choose(mask, x, y);
}

// Insertion sort of n elements that are nearly in order. before(j) is the mask of the lanes where
// element j belongs before element j - 1. exchange(j, lanes) exchanges both in those lanes.
template <class Before, class Exchange>
LINALG_INLINE void SortLanes(int n, Before&& before, Exchange&& exchange) {
  for (int i = 1; i < n; ++i) {
    for (int j = i; j > 0; --j) {
      const auto lanes = before(j);
      if (!Any(lanes)) break;
      exchange(j, lanes);
    }
  }
}

// a b + c with a real a
template <class V>
LINALG_INLINE Complex<V> MulAdd(V a, Complex<V> b, Complex<V> c) {
  return {MulAdd(a, b.re, c.re), MulAdd(a, b.im, c.im)};
}

// c - a b
template <class V>
LINALG_INLINE Complex<V> NegMulAdd(V a, Complex<V> b, Complex<V> c) {
  return MulAdd(-a, b, c);
}
template <class E>
LINALG_INLINE E NegMulAdd(E a, E b, E c) {
  if constexpr (kComplexElement<E>) {
    return {MulAdd(a.im, b.im, MulAdd(-a.re, b.re, c.re)),
            MulAdd(-a.im, b.re, MulAdd(-a.re, b.im, c.im))};
  } else {
    return MulAdd(-a, b, c);
  }
}

// conj(a) b + c
template <class E>
LINALG_INLINE E ConjMulAdd(E a, E b, E c) {
  if constexpr (kComplexElement<E>) {
    return {MulAdd(a.im, b.im, MulAdd(a.re, b.re, c.re)),
            MulAdd(-a.im, b.re, MulAdd(a.re, b.im, c.im))};
  } else {
    return MulAdd(a, b, c);
  }
}

template <class E>
LINALG_INLINE E Mul(E a, E b) {
  if constexpr (kComplexElement<E>) {
    return {MulAdd(-a.im, b.im, a.re * b.re), MulAdd(a.im, b.re, a.re * b.im)};
  } else {
    return a * b;
  }
}

// |a|² + c
template <class E>
LINALG_INLINE RealElement<E> NormAdd(E a, RealElement<E> c) {
  if constexpr (kComplexElement<E>) {
    return MulAdd(a.im, a.im, MulAdd(a.re, a.re, c));
  } else {
    return MulAdd(a, a, c);
  }
}

template <class V>
LINALG_INLINE V Abs(V a) {
  if constexpr (std::is_same_v<V, float>) {
    return __builtin_fabsf(a);
  } else if constexpr (std::is_same_v<V, double>) {
    return __builtin_fabs(a);
  } else {
    const Mask<V> sign = (Mask<V>)(-V{});  // -0: the sign bit alone
    return (V)((Mask<V>)a & ~sign);
  }
}

template <class V>
LINALG_INLINE V CopySign(V magnitude, V sign) {
  if constexpr (std::is_same_v<V, Lane<V>>) {
    return std::copysign(magnitude, sign);
  } else {
    using Bits = Mask<V>;
    const Bits bit = (Bits)(-V{});
    return (V)(((Bits)magnitude & ~bit) | ((Bits)sign & bit));
  }
}

// The size |re| + |im|, by which LAPACK chooses pivots.
template <class E>
LINALG_INLINE RealElement<E> Magnitude(E a) {
  if constexpr (kComplexElement<E>) {
    return Abs(a.re) + Abs(a.im);
  } else {
    return Abs(a);
  }
}

// The modulus |a|, for numbers whose squares are in range.
template <class E>
LINALG_INLINE RealElement<E> Modulus(E a) {
  if constexpr (kComplexElement<E>) {
    return Sqrt(NormAdd(a, RealElement<E>{}));
  } else {
    return Abs(a);
  }
}

// The mask of the elements with a NaN part.
template <class E>
LINALG_INLINE auto IsNaN(E a) {
  if constexpr (kComplexElement<E>) {
    return (a.re != a.re) | (a.im != a.im);
  } else {
    return a != a;
  }
}

// NaN in every lane, and in both parts of a complex number.
template <class E>
LINALG_INLINE E NaN() {
  using V = RealElement<E>;
  const V nan = Broadcast<V>(std::numeric_limits<Lane<V>>::quiet_NaN());
  if constexpr (kComplexElement<E>) {
    return {nan, nan};
  } else {
    return nan;
  }
}

// The element type of a pointer or a pointer-like class.
template <class Pointer>
using Pointed = std::remove_cvref_t<decltype(std::declval<Pointer>()[0])>;

// Sets all elements to NaN in the lanes where the mask holds.
template <class Pointer>
LINALG_INLINE void FillNaN(Mask<RealElement<Pointed<Pointer>>> mask, int64_t count, Pointer a) {
  using E = Pointed<Pointer>;
  if (!Any(mask)) return;
  const E nan = NaN<E>();
  for (int64_t i = 0; i < count; ++i) a[i] = Choose(mask, nan, a[i]);
}

}  // namespace linalg
