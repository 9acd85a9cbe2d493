// Moves matrices to lanes and back, for every register that handlers use.
#include "kernels/cpu/lanes.h"

#include "kernels/arithmetic/pack.h"

namespace linalg {

template <class V>
void PackLanes(const Lane<V>* source, int64_t stride, int64_t count, V* target) {
  Pack(source, stride, count, target);
}

template <class V>
void UnpackLanes(const V* source, int64_t stride, int64_t count, Lane<V>* target) {
  Unpack(source, stride, count, target);
}

#define LINALG_LANES(T, lanes)                                                              \
  template void PackLanes<Vector<T, lanes>>(const T*, int64_t, int64_t, Vector<T, lanes>*); \
  template void UnpackLanes<Vector<T, lanes>>(const Vector<T, lanes>*, int64_t, int64_t, T*);

LINALG_LANES(float, kLanes<float>)
LINALG_LANES(double, kLanes<double>)
LINALG_LANES(int32_t, kLanes<float>)
LINALG_LANES(int32_t, kLanes<double>)
#if defined(__AVX512F__)  // groups of half the width: as many floats as doubles
LINALG_LANES(float, kLanes<float> / 2)
LINALG_LANES(double, kLanes<double> / 2)
LINALG_LANES(int32_t, kLanes<double> / 2)
#endif

#undef LINALG_LANES

}  // namespace linalg
