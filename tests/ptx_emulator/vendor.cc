// Replaces cuSOLVER and cuBLAS by textbook routines with their interfaces, column-major. They
// access the same memory as the vendor's. syevd, gesvd and geev use SciPy's LAPACK.
#include <algorithm>
#include <complex>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <vector>

#include "kernels/arithmetic/element.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cuda/vendor.h"
#include "kernels/ffi.h"
#include "kernels/team/qr.h"
#include "tests/cuda/serial_team.h"
#include "tests/ptx_emulator/block.h"

namespace linalg::cuda::vendor {

// Called when a handle is lent. After that the routines write to untracked memory.
void (*lent)() = [] {};

namespace {

team::SerialTeam Alone() { return {1, team::Order::kForward}; }

template <class T>
T ConjugateOf(T x) {
  if constexpr (kIsComplex<T>) return std::conj(x);
  return x;
}

// A column-major matrix.
template <class T>
struct Columns {
  T* data;
  int ld;
  T& operator()(int i, int j) const { return data[static_cast<int64_t>(j) * ld + i]; }
};

// Simulates a fault that libraries have had: NaN pivots do not stop it, and info does not report
// them.
template <class T>
int Potrf(Solver, int uplo, int n, T* data, int ld, T*, int, int* info) {
  const Columns<T> a{data, ld};
  // Returns element (i, j) of the lower factor, i >= j, from whichever triangle is used.
  const auto get = [&](int i, int j) { return uplo == kLower ? a(i, j) : ConjugateOf(a(j, i)); };
  const auto set = [&](int i, int j, T x) {
    (uplo == kLower ? a(i, j) : a(j, i)) = uplo == kLower ? x : ConjugateOf(x);
  };
  *info = 0;
  for (int j = 0; j < n; ++j) {
    auto pivot = std::real(get(j, j));
    for (int k = 0; k < j; ++k) pivot -= std::norm(get(j, k));
    if (pivot <= 0) return *info = j + 1, 0;
    const auto root = std::sqrt(pivot);
    set(j, j, root);
    for (int i = j + 1; i < n; ++i) {
      T x = get(i, j);
      for (int k = 0; k < j; ++k) x -= get(i, k) * ConjugateOf(get(j, k));
      set(i, j, x / root);
    }
  }
  // The other triangle is unspecified.
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < j; ++i) (uplo == kLower ? a(i, j) : a(j, i)) = T(99);
  }
  return 0;
}

// Simulates faults that libraries have had: an info that reports nothing, and overflowing
// reciprocals of pivots.
template <class T>
int Getrf(Solver, int m, int n, T* data, int ld, T*, int* pivots, int* info) {
  const Columns<T> a{data, ld};
  const auto size = [](T x) { return std::abs(std::real(x)) + std::abs(std::imag(x)); };
  *info = 7;
  for (int k = 0; k < std::min(m, n); ++k) {
    int pivot = k;
    for (int i = k + 1; i < m; ++i) {
      if (size(a(i, k)) > size(a(pivot, k))) pivot = i;
    }
    pivots[k] = pivot + 1;
    if (a(pivot, k) == T(0)) continue;
    for (int j = 0; j < n; ++j) std::swap(a(k, j), a(pivot, j));
    const T inverse = Real<T>(1) / a(k, k);
    for (int i = k + 1; i < m; ++i) {
      a(i, k) *= inverse;
      for (int j = k + 1; j < n; ++j) a(i, j) -= a(i, k) * a(k, j);
    }
  }
  return 0;
}

// Calls body(a, ld) on a row-major copy of a column-major m by n matrix, and copies it back.
template <class T, class Body>
void RowMajor(int m, int n, T* data, int ld, Body&& body) {
  const Columns<T> a{data, ld};
  std::vector<Element<T>> copy(static_cast<size_t>(m) * n + 1);
  auto* const rows = reinterpret_cast<T*>(copy.data());
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) rows[i * n + j] = a(i, j);
  }
  body(copy.data(), n);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) a(i, j) = rows[i * n + j];
  }
}

template <class T>
int Geqrf(Solver, int m, int n, T* a, int ld, T* taus, T*, int, int* info) {
  RowMajor(m, n, a, ld, [&](auto* rows, int stride) {
    Element<T> partial;
    team::HouseholderQr(Alone(), m, n, rows, stride, reinterpret_cast<Element<T>*>(taus), &partial);
  });
  return *info = 0;
}

template <class T>
int Orgqr(Solver, int m, int n, int k, T* a, int ld, const T* taus, T*, int, int* info) {
  RowMajor(m, n, a, ld, [&](auto* rows, int stride) {
    Element<T> partial;
    team::HouseholderProduct(Alone(), m, n, k, rows, stride,
                             reinterpret_cast<const Element<T>*>(taus), &partial);
  });
  return *info = 0;
}

template <class T>
int TrsmOne(Blas, int side, int uplo, int trans, int diag, int m, int n, const T* alpha, const T* a,
            int lda, T* data, int ldb) {
  const Columns<T> b{data, ldb};
  const int order = side == kLeft ? m : n, count = side == kLeft ? n : m;
  // op(a) x = b, or x op(a) = b, which is op(a)ᵀ xᵀ = bᵀ.
  const bool flipped = (trans != kPlain) != (side == kRight);
  const bool lower = (uplo == kLower) != flipped;
  const auto get = [&](int i, int j) {
    const T x =
        flipped ? a[static_cast<int64_t>(i) * lda + j] : a[static_cast<int64_t>(j) * lda + i];
    return trans == kAdjoint ? ConjugateOf(x) : x;
  };
  for (int c = 0; c < count; ++c) {
    const auto x = [&](int i) -> T& { return side == kLeft ? b(i, c) : b(c, i); };
    for (int step = 0; step < order; ++step) {
      const int i = lower ? step : order - 1 - step;
      T sum = *alpha * x(i);
      for (int j = lower ? 0 : i + 1; j < (lower ? i : order); ++j) sum -= get(i, j) * x(j);
      x(i) = diag == kUnit ? sum : sum * (Real<T>(1) / get(i, i));
    }
  }
  return 0;
}

template <class T>
int GemmStridedBatched(Blas, int transa, int transb, int m, int n, int k, const T* alpha,
                       const T* a, int lda, long long a_stride, const T* b, int ldb,
                       long long b_stride, const T* beta, T* data, int ldc, long long c_stride,
                       int batch) {
  if (lda < std::max(1, transa == kPlain ? m : k) || ldb < std::max(1, transb == kPlain ? k : n) ||
      ldc < std::max(1, m)) {
    return 7;  // CUBLAS_STATUS_INVALID_VALUE
  }
  const auto get = [](const T* x, int ld, int op, int i, int j) {
    const T value =
        op == kPlain ? x[static_cast<int64_t>(j) * ld + i] : x[static_cast<int64_t>(i) * ld + j];
    return op == kAdjoint ? ConjugateOf(value) : value;
  };
  const int64_t ends = ptx::EndsOfLaunches();
  for (int matrix = 0; matrix < batch; ++matrix) {
    if (ends > 0 && matrix == ends && batch > 2 * ends) matrix = static_cast<int>(batch - ends);
    const Columns<T> c{data + matrix * c_stride, ldc};
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < m; ++i) {
        T sum(0);
        for (int l = 0; l < k; ++l) {
          sum += get(a + matrix * a_stride, lda, transa, i, l) *
                 get(b + matrix * b_stride, ldb, transb, l, j);
        }
        // The result is not read where beta is 0: it may be NaN.
        c(i, j) = *alpha * sum + (*beta == T(0) ? T(0) : *beta * c(i, j));
      }
    }
  }
  return 0;
}

// body(std::type_identity<T>{})
template <class Body>
int OfType(cudaDataType type, Body&& body) {
  switch (type) {
    case CUDA_R_32F:
      return body(std::type_identity<float>{});
    case CUDA_R_64F:
      return body(std::type_identity<double>{});
    case CUDA_C_32F:
      return body(std::type_identity<std::complex<float>>{});
    default:
      return body(std::type_identity<std::complex<double>>{});
  }
}

// Returns an error where the documentation forbids the arguments, and for operands that may prevent
// an iteration from ending.
template <class T>
bool IsFinite(int64_t count, const T* a) {
  return std::all_of(
      a, a + count, [](T x) { return std::isfinite(std::real(x)) && std::isfinite(std::imag(x)); });
}

template <class T>
int Syev(int job, int uplo, int64_t n, void* data, int64_t ld, void* w, int* info) {
  if (ld != n) return 1;
  // cuSOLVER has had errors for the lower triangle of complex matrices.
  if (uplo != (kIsComplex<T> ? kUpper : kLower)) return 1;
  auto* const matrix = static_cast<T*>(data);
  if (!IsFinite(n * n, matrix)) return 3;
  lapack::Syevd<T> syevd(n, job == kVectors);
  *info = syevd(uplo == kUpper ? 'U' : 'L', matrix, ToInt(n), static_cast<Real<T>*>(w));
  return 0;
}

int SyevOfType(int job, int uplo, int64_t n, cudaDataType type, void* a, int64_t ld, void* w,
               int* info) {
  return OfType(
      type, [&]<class T>(std::type_identity<T>) { return Syev<T>(job, uplo, n, a, ld, w, info); });
}

int Gesvd(Solver, SolverParameters, signed char jobu, signed char jobvt, int64_t m, int64_t n,
          cudaDataType type, void* a, int64_t lda, cudaDataType real, void* s, cudaDataType type_u,
          void* u, int64_t ldu, cudaDataType type_vt, void* vt, int64_t ldvt, cudaDataType compute,
          void*, size_t, void*, size_t, int* info) {
  if (jobu != jobvt || m < n || lda != m || ldu != m || ldvt != n) return 1;
  if (type_u != type || type_vt != type || compute != type) return 2;
  return OfType(type, [&]<class T>(std::type_identity<T>) {
    auto* const matrix = static_cast<T*>(a);
    if (real != kDataType<Real<T>> || !IsFinite(m * n, matrix)) return 3;
    lapack::Gesdd<T> gesdd(static_cast<char>(jobu), m, n);
    *info = gesdd(matrix, static_cast<Real<T>*>(s), static_cast<T*>(u), static_cast<T*>(vt));
    return 0;
  });
}

// Simulates what the library documents: singular values near zero are moved away from it, and an
// estimate of this error is returned. A matrix of equal elements does not converge. The vectors
// have the opposite sign of those of Gesvd, so that a test knows which routine was called.
int Gesvdp(Solver, SolverParameters, int job, int economic, int64_t m, int64_t n, cudaDataType type,
           void* a, int64_t lda, cudaDataType real, void* s, cudaDataType type_u, void* u,
           int64_t ldu, cudaDataType type_v, void* v, int64_t ldv, cudaDataType compute, void*,
           size_t, void*, size_t, int* info, double* perturbation) {
  if (m < n || lda != m || ldu != m || ldv != n) return 1;
  if (type_u != type || type_v != type || compute != type) return 2;
  return OfType(type, [&]<class T>(std::type_identity<T>) {
    using R = Real<T>;
    auto* const matrix = static_cast<T*>(a);
    if (real != kDataType<R> || !IsFinite(m * n, matrix)) return 3;
    auto* const values = static_cast<R*>(s);
    auto* const right = static_cast<T*>(v);
    *perturbation = 0;
    *info = std::all_of(matrix, matrix + m * n, [&](T x) { return x == matrix[0]; }) ? 1 : 0;
    std::vector<T> vt(n * n);
    auto* const left = static_cast<T*>(u);
    lapack::Gesdd<T> gesdd(job == kNoVectors ? 'N' : economic != 0 ? 'S' : 'A', m, n);
    if (*info == 0) *info = gesdd(matrix, values, left, vt.data());
    std::fill_n(matrix, m * n, std::numeric_limits<R>::quiet_NaN());
    if (job == kVectors) {
      std::for_each(left, left + m * (economic != 0 ? n : m), [](T& x) { x = -x; });
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) right[i * n + j] = -ConjugateOf(vt[j * n + i]);
      }
    }
    const R added = std::sqrt(std::numeric_limits<R>::epsilon()) * values[0];
    if (*info != 0 || values[n - 1] >= added) return 0;
    *perturbation = added;
    std::for_each(values, values + n, [&](R& x) { x += added; });
    return 0;
  });
}

// U and V are overwritten even if unwanted, because they may be used as workspace.
template <class T>
int Gesvdj(Solver, int job, int economic, int m, int n, T* a, int lda, Real<T>* s, T* u, int ldu,
           T* v, int ldv, T*, int, int* info, JacobiParameters) {
  if (lda != m || ldu != m || ldv != n) return 1;
  if (!IsFinite(int64_t{m} * n, a)) return 3;
  const int64_t rows = economic ? std::min(m, n) : n, cols = economic ? std::min(m, n) : m;
  std::fill_n(u, m * cols, std::numeric_limits<Real<T>>::quiet_NaN());
  std::fill_n(v, n * rows, std::numeric_limits<Real<T>>::quiet_NaN());
  std::vector<T> vt(rows * n);
  lapack::Gesdd<T> gesdd(job == kNoVectors ? 'N' : economic ? 'S' : 'A', m, n);
  *info = gesdd(a, s, u, vt.data());
  if (job == kNoVectors) return 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) v[i * n + j] = ConjugateOf(vt[j * rows + i]);
  }
  return 0;
}

int Geev(Solver, SolverParameters, int jobvl, int jobvr, int64_t n, cudaDataType type, void* a,
         int64_t lda, cudaDataType complex, void* w, cudaDataType, void*, int64_t,
         cudaDataType type_vr, void* vr, int64_t ldvr, cudaDataType compute, void*, size_t, void*,
         size_t, int* info) {
  if (jobvl != kNoVectors || lda != n || ldvr != n) return 1;
  if (type_vr != type || compute != type) return 2;
  return OfType(type, [&]<class T>(std::type_identity<T>) {
    using C = std::complex<Real<T>>;
    auto* const matrix = static_cast<T*>(a);
    if (complex != kDataType<C> || !IsFinite(n * n, matrix)) return 3;
    lapack::Geev<T> geev(n, false, jobvr == kVectors);
    *info = geev(matrix, static_cast<C*>(w), nullptr, static_cast<T*>(vr));
    return 0;
  });
}

int64_t SizeOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : type == CUDA_C_64F ? 16 : 8; }

template <class T>
void Fill(TypedFunctions<T>& f) {
  f.potrf_bufferSize = [](Solver, int, int, T*, int, int* size) { return *size = 1, 0; };
  f.potrf = &Potrf<T>;
  f.getrf_bufferSize = [](Solver, int, int, T*, int, int* size) { return *size = 1, 0; };
  f.getrf = &Getrf<T>;
  f.geqrf_bufferSize = [](Solver, int, int, T*, int, int* size) { return *size = 1, 0; };
  f.geqrf = &Geqrf<T>;
  f.orgqr_bufferSize = [](Solver, int, int, int, const T*, int, const T*, int* size) {
    return *size = 1, 0;
  };
  f.orgqr = &Orgqr<T>;
  f.gesvdj_bufferSize = [](Solver, int, int, int, int, const T*, int, const Real<T>*, const T*, int,
                           const T*, int, int* size, JacobiParameters) { return *size = 1, 0; };
  f.gesvdj = &Gesvdj<T>;
  f.getrfBatched = [](Blas, int n, T* const* a, int ld, int* pivots, int* info, int batch) {
    for (int i = 0; i < batch; ++i) {
      Getrf<T>(nullptr, n, n, a[i], ld, nullptr, pivots + static_cast<int64_t>(i) * n, info + i);
    }
    return 0;
  };
  f.gemmStridedBatched = &GemmStridedBatched<T>;
  f.trsm = &TrsmOne<T>;
  f.trsmBatched = [](Blas, int side, int uplo, int trans, int diag, int m, int n, const T* alpha,
                     const T* const* a, int lda, T* const* b, int ldb, int batch) {
    for (int i = 0; i < batch; ++i) {
      TrsmOne<T>(nullptr, side, uplo, trans, diag, m, n, alpha, a[i], lda, b[i], ldb);
    }
    return 0;
  };
}

template <class Handle>
int Make(Handle* handle) {
  static char place;
  *handle = reinterpret_cast<Handle>(&place);
  return 0;
}

template <class Handle>
int SetStream(Handle, cudaStream_t) {
  lent();
  return 0;
}

bool FillAll() {
  auto& f = functions;
  f.cusolverDnCreate = &Make<Solver>;
  f.cusolverDnSetStream = &SetStream<Solver>;
  f.cusolverDnCreateParams = &Make<SolverParameters>;
  f.cusolverDnCreateGesvdjInfo = &Make<JacobiParameters>;
  f.cublasCreate_v2 = &Make<Blas>;
  f.cublasSetStream_v2 = &SetStream<Blas>;
  f.cusolverDnXsyevd_bufferSize = [](Solver, SolverParameters, int, int, int64_t, cudaDataType,
                                     const void*, int64_t, cudaDataType, const void*, cudaDataType,
                                     size_t* device,
                                     size_t* host) { return *device = *host = 8, 0; };
  f.cusolverDnXsyevd = [](Solver, SolverParameters, int job, int uplo, int64_t n, cudaDataType type,
                          void* a, int64_t ld, cudaDataType, void* w, cudaDataType, void*, size_t,
                          void*, size_t,
                          int* info) { return SyevOfType(job, uplo, n, type, a, ld, w, info); };
  f.cusolverDnXsyevBatched_bufferSize = [](Solver, SolverParameters, int, int, int64_t,
                                           cudaDataType, const void*, int64_t, cudaDataType,
                                           const void*, cudaDataType, size_t* device, size_t* host,
                                           int64_t) { return *device = 8, *host = 0, 0; };
  f.cusolverDnXsyevBatched = [](Solver, SolverParameters, int job, int uplo, int64_t n,
                                cudaDataType type, void* a, int64_t ld, cudaDataType real, void* w,
                                cudaDataType, void*, size_t, void*, size_t, int* info,
                                int64_t batch) {
    if (batch > 1 << 14 || batch * n * n * SizeOf(type) > std::numeric_limits<int>::max()) return 3;
    for (int64_t i = 0; i < batch; ++i) {
      const int status =
          SyevOfType(job, uplo, n, type, static_cast<char*>(a) + i * n * n * SizeOf(type), ld,
                     static_cast<char*>(w) + i * n * SizeOf(real), info + i);
      if (status != 0) return status;
    }
    return 0;
  };
  f.cusolverDnXgesvd_bufferSize = [](Solver, SolverParameters, signed char, signed char, int64_t,
                                     int64_t, cudaDataType, const void*, int64_t, cudaDataType,
                                     const void*, cudaDataType, const void*, int64_t, cudaDataType,
                                     const void*, int64_t, cudaDataType, size_t* device,
                                     size_t* host) { return *device = *host = 8, 0; };
  f.cusolverDnXgesvd = &Gesvd;
  f.cusolverDnXgesvdp_bufferSize =
      [](Solver, SolverParameters, int, int, int64_t, int64_t, cudaDataType, const void*, int64_t,
         cudaDataType, const void*, cudaDataType, const void*, int64_t, cudaDataType, const void*,
         int64_t, cudaDataType, size_t* device, size_t* host) { return *device = *host = 8, 0; };
  f.cusolverDnXgesvdp = &Gesvdp;
  f.cusolverDnXgeev_bufferSize =
      [](Solver, SolverParameters, int, int, int64_t, cudaDataType, const void*, int64_t,
         cudaDataType, const void*, cudaDataType, const void*, int64_t, cudaDataType, const void*,
         int64_t, cudaDataType, size_t* device, size_t* host) { return *device = *host = 8, 0; };
  f.cusolverDnXgeev = &Geev;
  if (std::getenv("LINALG_PTX_OLDER") != nullptr) {  // CUDA 12.1
    f.cusolverDnXsyevBatched = nullptr;
    f.cusolverDnXgeev = nullptr;
  }
  Fill(typed_functions<float>);
  Fill(typed_functions<double>);
  Fill(typed_functions<std::complex<float>>);
  Fill(typed_functions<std::complex<double>>);
  return true;
}

}  // namespace

Functions functions{};

void Load() { [[maybe_unused]] static const bool filled = FillAll(); }

void Check(int status, const char* function) {
  if (status != 0) throw std::runtime_error(std::string(function) + " failed");
}

}  // namespace linalg::cuda::vendor

// Sets SciPy's LAPACK routines for one type letter: plugin.py.
extern "C" void set_lapack(char letter, void (*syevd)(), void (*gesdd)(), void (*geev)()) {
  const auto set = [&](auto& routines) {
    routines.syevd = syevd, routines.gesdd = gesdd, routines.geev = geev;
  };
  using linalg::lapack::routines;
  if (letter == 's') set(routines<float>);
  if (letter == 'd') set(routines<double>);
  if (letter == 'c') set(routines<std::complex<float>>);
  if (letter == 'z') set(routines<std::complex<double>>);
}
