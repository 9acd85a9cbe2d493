// The functions of kernels/small that several handlers call. A compiler takes long over them, so
// once.cc compiles each of them once. The cost of a call is negligible.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/small/hessenberg.h"
#include "kernels/small/householder.h"
#include "kernels/small/lu.h"
#include "kernels/small/mul_sub.h"
#include "kernels/small/one_system.h"

namespace linalg {

// The elements of a group of full width, of half of it, and the column blocks of a single matrix.
template <class T>
using ElementInLanes = Element<T, Vector<Real<T>, kLanes<T>>>;
template <class T>
using ElementInHalf = Element<T, Vector<Real<T>, kLanes<T> / 2>>;
template <class T>
using BlockOfOne = ColumnBlock<T, Real<T>>;

// Calls visit(declare, T, Of) for every dtype T and each group or block Of<T>. Tests compile one
// dtype only.
#if !defined(LINALG_EACH_DTYPE)
#define LINALG_EACH_DTYPE(visit, declare, Of)                                                  \
  visit(declare, float, Of) visit(declare, double, Of) visit(declare, std::complex<float>, Of) \
      visit(declare, std::complex<double>, Of)
#endif
// If registers have 64 bytes, ForEachGroup also uses groups of half the width.
#if defined(__AVX512F__)
static_assert(kRegisterBytes == 64);
#define LINALG_EACH_ELEMENT(visit, declare)         \
  LINALG_EACH_DTYPE(visit, declare, ElementInLanes) \
  LINALG_EACH_DTYPE(visit, declare, ElementInHalf)  \
  LINALG_EACH_DTYPE(visit, declare, Element)
#else
static_assert(kRegisterBytes < 64);
#define LINALG_EACH_ELEMENT(visit, declare) \
  LINALG_EACH_DTYPE(visit, declare, ElementInLanes) LINALG_EACH_DTYPE(visit, declare, Element)
#endif

namespace small {

// E is the element, B the block of columns.
#define LINALG_REFLECTORS(declare, B, E)                                                   \
  declare template void HouseholderQr<B>(E*, int, int, int, E*, E*);                       \
  declare template void HouseholderProduct<B>(E*, int, int, int, int, const E*, const E*); \
  declare template void MultiplyByQ<B>(bool, int, int, int, const E*, const E*, E*);       \
  declare template void Hessenberg<B>(E*, int, E*, E*);

#define LINALG_FACTORS(declare, E)                                                       \
  declare template void MulSubAll(int, int, int, const E*, int, const E*, int, E*, int); \
  declare template RealElement<E> Lu(int, int, E*, RealElement<E>*, RealElement<E>*);    \
  declare template void ApplyPivots(int, LanePivots<RealElement<E>>, bool, int, E*);

// `declare` is `extern`, but empty in once.cc.
#define LINALG_ONCE_IN(declare, T, Of) \
  LINALG_REFLECTORS(declare, Of<T>, Of<T>) LINALG_FACTORS(declare, Of<T>)
// Row is a register of columns, or one column.
#define LINALG_SUBSTITUTION(declare, Row, E) \
  declare template void SolveOne<Row>(const SubstitutionPass&, int, const E*, SplitRows<E, Row>);
#define LINALG_ONCE_OF_ONE(declare, T, Of)                     \
  LINALG_REFLECTORS(declare, Of<T>, Element<T>)                \
  LINALG_SUBSTITUTION(declare, RealElement<Of<T>>, Element<T>) \
  LINALG_SUBSTITUTION(declare, Real<T>, Element<T>)
#define LINALG_ONCE_ALL(declare)               \
  LINALG_EACH_ELEMENT(LINALG_ONCE_IN, declare) \
  LINALG_EACH_DTYPE(LINALG_ONCE_OF_ONE, declare, BlockOfOne)

LINALG_ONCE_ALL(extern)

}  // namespace small
}  // namespace linalg
