// Compares the declarations of cuSOLVER and cuBLAS in kernels/cuda/vendor.h with NVIDIA's headers.
// This file is compiled and never linked. A difference means that a function is called with wrong
// arguments.
#include <cublas_v2.h>
#include <cusolverDn.h>

#include <complex>
#include <type_traits>

#include "kernels/cuda/vendor.h"

namespace linalg::cuda::vendor {
namespace {

// The type that represents T in a call. Enumerations become their integers, and numbers become the
// vendor's with the same bits. The vendor's handles are opaque pointers.
template <class T>
struct Passed {
  using Type = T;
};
template <class T>
  requires std::is_enum_v<T>
struct Passed<T> {
  // The size of an int, without negative values.
  using Type = std::conditional_t<sizeof(T) == sizeof(int), int, T>;
};
template <>
struct Passed<cuComplex> {
  using Type = std::complex<float>;
};
template <>
struct Passed<cuDoubleComplex> {
  using Type = std::complex<double>;
};
template <class T>
struct Passed<const T> {
  using Type = const typename Passed<T>::Type;
};
template <class T>
struct Passed<T*> {
  using Type = typename Passed<T>::Type*;
};
// The opaque types have the vendor's names, in another namespace.
template <>
struct Passed<::cusolverDnContext> {
  using Type = std::remove_pointer_t<Solver>;
};
template <>
struct Passed<::cusolverDnParams> {
  using Type = std::remove_pointer_t<SolverParameters>;
};
template <>
struct Passed<::gesvdjInfo> {
  using Type = std::remove_pointer_t<JacobiParameters>;
};
template <>
struct Passed<::cublasContext> {
  using Type = std::remove_pointer_t<Blas>;
};
template <class Result, class... Arguments>
struct Passed<Result (*)(Arguments...)> {
  using Type = typename Passed<Result>::Type (*)(typename Passed<Arguments>::Type...);
};

template <class Ours, class Theirs>
inline constexpr bool kSame =
    std::is_same_v<typename Passed<Ours>::Type, typename Passed<Theirs>::Type>;

#define SAME(member, function) \
  static_assert(kSame<decltype(Functions::member), decltype(&function)>, #function)
#define SAME_NAME(function) SAME(function, function)
SAME_NAME(cusolverDnCreate);
SAME_NAME(cusolverDnSetStream);
SAME_NAME(cusolverDnCreateParams);
SAME_NAME(cusolverDnCreateGesvdjInfo);
SAME_NAME(cusolverDnXsyevd_bufferSize);
SAME_NAME(cusolverDnXsyevd);
SAME_NAME(cusolverDnXsyevBatched_bufferSize);
SAME_NAME(cusolverDnXsyevBatched);
SAME_NAME(cusolverDnXgesvd_bufferSize);
SAME_NAME(cusolverDnXgesvd);
SAME_NAME(cusolverDnXgesvdp_bufferSize);
SAME_NAME(cusolverDnXgesvdp);
SAME_NAME(cusolverDnXgeev_bufferSize);
SAME_NAME(cusolverDnXgeev);
SAME_NAME(cublasCreate_v2);
SAME_NAME(cublasSetStream_v2);
#undef SAME_NAME
#undef SAME

#define SAME(type, member, function) \
  static_assert(kSame<decltype(TypedFunctions<type>::member), decltype(&function)>, #function)
#define SAME_OF_TYPE(type, letter, orgqr_name)                               \
  SAME(type, potrf_bufferSize, cusolverDn##letter##potrf_bufferSize);        \
  SAME(type, potrf, cusolverDn##letter##potrf);                              \
  SAME(type, getrf_bufferSize, cusolverDn##letter##getrf_bufferSize);        \
  SAME(type, getrf, cusolverDn##letter##getrf);                              \
  SAME(type, geqrf_bufferSize, cusolverDn##letter##geqrf_bufferSize);        \
  SAME(type, geqrf, cusolverDn##letter##geqrf);                              \
  SAME(type, orgqr_bufferSize, cusolverDn##letter##orgqr_name##_bufferSize); \
  SAME(type, orgqr, cusolverDn##letter##orgqr_name);                         \
  SAME(type, gesvdj_bufferSize, cusolverDn##letter##gesvdj_bufferSize);      \
  SAME(type, gesvdj, cusolverDn##letter##gesvdj);                            \
  SAME(type, getrfBatched, cublas##letter##getrfBatched);                    \
  SAME(type, trsm, cublas##letter##trsm_v2);                                 \
  SAME(type, trsmBatched, cublas##letter##trsmBatched);                      \
  SAME(type, gemmStridedBatched, cublas##letter##gemmStridedBatched)
SAME_OF_TYPE(float, S, orgqr);
SAME_OF_TYPE(double, D, orgqr);
SAME_OF_TYPE(std::complex<float>, C, ungqr);
SAME_OF_TYPE(std::complex<double>, Z, ungqr);

static_assert(int{kLower} == CUBLAS_FILL_MODE_LOWER && int{kUpper} == CUBLAS_FILL_MODE_UPPER);
static_assert(int{kLeft} == CUBLAS_SIDE_LEFT && int{kRight} == CUBLAS_SIDE_RIGHT);
static_assert(int{kPlain} == CUBLAS_OP_N && int{kTranspose} == CUBLAS_OP_T);
static_assert(int{kAdjoint} == CUBLAS_OP_C);
static_assert(int{kNonUnit} == CUBLAS_DIAG_NON_UNIT && int{kUnit} == CUBLAS_DIAG_UNIT);
static_assert(int{kNoVectors} == CUSOLVER_EIG_MODE_NOVECTOR);
static_assert(int{kVectors} == CUSOLVER_EIG_MODE_VECTOR);
static_assert(CUSOLVER_STATUS_SUCCESS == 0 && CUBLAS_STATUS_SUCCESS == 0);

}  // namespace
}  // namespace linalg::cuda::vendor
