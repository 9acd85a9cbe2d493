// cuSOLVER and cuBLAS as typed functions, opened when a handler first needs them. Neither their
// headers nor their libraries are needed to build or import the module.
//
// Matrices are column-major with leading dimension `ld`. The prototype of the called function
// stands above each wrapper. The symbols are those of cuSOLVER 12.0 and cuBLAS 13.1 (CUDA 13.0).
// The libraries of CUDA 12 have them too, but for the ones that some releases lack: they stay null.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace linalg::cuda::vendor {

using Solver = struct cusolverDnContext*;
using SolverParameters = struct cusolverDnParams*;
using JacobiParameters = struct gesvdjInfo*;
using Blas = struct cublasContext*;

enum FillMode : int { kLower = 0, kUpper = 1 };                         // cublasFillMode_t
enum Side : int { kLeft = 0, kRight = 1 };                              // cublasSideMode_t
enum Transposition : int { kPlain = 0, kTranspose = 1, kAdjoint = 2 };  // cublasOperation_t
enum Diagonal : int { kNonUnit = 0, kUnit = 1 };                        // cublasDiagType_t
enum Job : int { kNoVectors = 0, kVectors = 1 };                        // cusolverEigMode_t

struct Functions {
  int (*cusolverDnCreate)(Solver*);
  int (*cusolverDnSetStream)(Solver, cudaStream_t);
  int (*cusolverDnCreateParams)(SolverParameters*);
  int (*cusolverDnCreateGesvdjInfo)(JacobiParameters*);
  int (*cusolverDnXsyevd_bufferSize)(Solver, SolverParameters, int job, int uplo, int64_t n,
                                     cudaDataType, const void* a, int64_t ld, cudaDataType,
                                     const void* w, cudaDataType, size_t*, size_t*);
  int (*cusolverDnXsyevd)(Solver, SolverParameters, int job, int uplo, int64_t n, cudaDataType,
                          void* a, int64_t ld, cudaDataType, void* w, cudaDataType,
                          void* device_work, size_t, void* host_work, size_t, int* info);
  int (*cusolverDnXsyevBatched_bufferSize)(Solver, SolverParameters, int job, int uplo, int64_t n,
                                           cudaDataType, const void* a, int64_t ld, cudaDataType,
                                           const void* w, cudaDataType, size_t*, size_t*,
                                           int64_t batch);
  int (*cusolverDnXsyevBatched)(Solver, SolverParameters, int job, int uplo, int64_t n,
                                cudaDataType, void* a, int64_t ld, cudaDataType, void* w,
                                cudaDataType, void* device_work, size_t, void* host_work, size_t,
                                int* info, int64_t batch);
  int (*cusolverDnXgesvd_bufferSize)(Solver, SolverParameters, signed char jobu, signed char jobvt,
                                     int64_t m, int64_t n, cudaDataType, const void* a, int64_t lda,
                                     cudaDataType, const void* s, cudaDataType, const void* u,
                                     int64_t ldu, cudaDataType, const void* vt, int64_t ldvt,
                                     cudaDataType, size_t*, size_t*);
  int (*cusolverDnXgesvd)(Solver, SolverParameters, signed char jobu, signed char jobvt, int64_t m,
                          int64_t n, cudaDataType, void* a, int64_t lda, cudaDataType, void* s,
                          cudaDataType, void* u, int64_t ldu, cudaDataType, void* vt, int64_t ldvt,
                          cudaDataType, void* device_work, size_t, void* host_work, size_t,
                          int* info);
  int (*cusolverDnXgesvdp_bufferSize)(Solver, SolverParameters, int job, int econ, int64_t m,
                                      int64_t n, cudaDataType, const void* a, int64_t lda,
                                      cudaDataType, const void* s, cudaDataType, const void* u,
                                      int64_t ldu, cudaDataType, const void* v, int64_t ldv,
                                      cudaDataType, size_t*, size_t*);
  int (*cusolverDnXgesvdp)(Solver, SolverParameters, int job, int econ, int64_t m, int64_t n,
                           cudaDataType, void* a, int64_t lda, cudaDataType, void* s, cudaDataType,
                           void* u, int64_t ldu, cudaDataType, void* v, int64_t ldv, cudaDataType,
                           void* device_work, size_t, void* host_work, size_t, int* info,
                           double* perturbation);
  int (*cusolverDnXgeev_bufferSize)(Solver, SolverParameters, int jobvl, int jobvr, int64_t n,
                                    cudaDataType, const void* a, int64_t lda, cudaDataType,
                                    const void* w, cudaDataType, const void* vl, int64_t ldvl,
                                    cudaDataType, const void* vr, int64_t ldvr, cudaDataType,
                                    size_t*, size_t*);
  int (*cusolverDnXgeev)(Solver, SolverParameters, int jobvl, int jobvr, int64_t n, cudaDataType,
                         void* a, int64_t lda, cudaDataType, void* w, cudaDataType, void* vl,
                         int64_t ldvl, cudaDataType, void* vr, int64_t ldvr, cudaDataType,
                         void* device_work, size_t, void* host_work, size_t, int* info);
  int (*cublasCreate_v2)(Blas*);
  int (*cublasSetStream_v2)(Blas, cudaStream_t);
};

// One pointer per function, named after its type by a letter. For complex types orgqr is ungqr.
template <class T>
struct TypedFunctions {
  using Real = decltype(std::real(T()));
  int (*potrf_bufferSize)(Solver, int uplo, int n, T* a, int ld, int* size);
  int (*potrf)(Solver, int uplo, int n, T* a, int ld, T* work, int size, int* info);
  int (*getrf_bufferSize)(Solver, int m, int n, T* a, int ld, int* size);
  int (*getrf)(Solver, int m, int n, T* a, int ld, T* work, int* pivots, int* info);
  int (*geqrf_bufferSize)(Solver, int m, int n, T* a, int ld, int* size);
  int (*geqrf)(Solver, int m, int n, T* a, int ld, T* tau, T* work, int size, int* info);
  int (*orgqr_bufferSize)(Solver, int m, int n, int k, const T* a, int ld, const T* tau, int* size);
  int (*orgqr)(Solver, int m, int n, int k, T* a, int ld, const T* tau, T* work, int size,
               int* info);
  int (*gesvdj_bufferSize)(Solver, int job, int econ, int m, int n, const T* a, int lda,
                           const Real* s, const T* u, int ldu, const T* v, int ldv, int* size,
                           JacobiParameters);
  int (*gesvdj)(Solver, int job, int econ, int m, int n, T* a, int lda, Real* s, T* u, int ldu,
                T* v, int ldv, T* work, int size, int* info, JacobiParameters);
  int (*getrfBatched)(Blas, int n, T* const* a, int ld, int* pivots, int* info, int batch);
  int (*trsm)(Blas, int side, int uplo, int trans, int diag, int m, int n, const T* alpha,
              const T* a, int lda, T* b, int ldb);
  int (*trsmBatched)(Blas, int side, int uplo, int trans, int diag, int m, int n, const T* alpha,
                     const T* const* a, int lda, T* const* b, int ldb, int batch);
  int (*gemmStridedBatched)(Blas, int transa, int transb, int m, int n, int k, const T* alpha,
                            const T* a, int lda, long long a_stride, const T* b, int ldb,
                            long long b_stride, const T* beta, T* c, int ldc, long long c_stride,
                            int batch);
};

extern Functions functions;
template <class T>
inline TypedFunctions<T> typed_functions{};

// Directories to search for the libraries, after those of the dynamic linker.
void SetDirectories(std::vector<std::string> directories);
// Opens the libraries and fills the tables, unless that is done. Throws a std::runtime_error that
// names the library and where it comes from.
void Load();
// Throws unless the function returned 0, which is success in both libraries.
void Check(int status, const char* function);

template <class T>
inline constexpr cudaDataType kDataType = std::is_same_v<T, float>                 ? CUDA_R_32F
                                          : std::is_same_v<T, double>              ? CUDA_R_64F
                                          : std::is_same_v<T, std::complex<float>> ? CUDA_C_32F
                                                                                   : CUDA_C_64F;

// cusolverDn<t>potrf_bufferSize(handle, uplo, n, A, lda, Lwork)
template <class T>
int PotrfWork(Solver solver, FillMode uplo, int n, T* a, int ld) {
  int size = 0;
  Check(typed_functions<T>.potrf_bufferSize(solver, uplo, n, a, ld, &size), "potrf_bufferSize");
  return size;
}

// cusolverDn<t>potrf(handle, uplo, n, A, lda, Workspace, Lwork, devInfo)
template <class T>
void Potrf(Solver solver, FillMode uplo, int n, T* a, int ld, T* work, int size, int* info) {
  Check(typed_functions<T>.potrf(solver, uplo, n, a, ld, work, size, info), "potrf");
}

// cusolverDn<t>getrf_bufferSize(handle, m, n, A, lda, Lwork)
template <class T>
int GetrfWork(Solver solver, int m, int n, T* a, int ld) {
  int size = 0;
  Check(typed_functions<T>.getrf_bufferSize(solver, m, n, a, ld, &size), "getrf_bufferSize");
  return size;
}

// cusolverDn<t>getrf(handle, m, n, A, lda, Workspace, devIpiv, devInfo)
template <class T>
void Getrf(Solver solver, int m, int n, T* a, int ld, T* work, int* pivots, int* info) {
  Check(typed_functions<T>.getrf(solver, m, n, a, ld, work, pivots, info), "getrf");
}

// cublas<t>getrfBatched(handle, n, Aarray, lda, PivotArray, infoArray, batchSize)
template <class T>
void GetrfBatched(Blas blas, int n, T* const* a, int ld, int* pivots, int* info, int batch) {
  Check(typed_functions<T>.getrfBatched(blas, n, a, ld, pivots, info, batch), "getrfBatched");
}

// cusolverDn<t>geqrf_bufferSize(handle, m, n, A, lda, Lwork)
template <class T>
int GeqrfWork(Solver solver, int m, int n, T* a, int ld) {
  int size = 0;
  Check(typed_functions<T>.geqrf_bufferSize(solver, m, n, a, ld, &size), "geqrf_bufferSize");
  return size;
}

// cusolverDn<t>geqrf(handle, m, n, A, lda, TAU, Workspace, Lwork, devInfo)
template <class T>
void Geqrf(Solver solver, int m, int n, T* a, int ld, T* taus, T* work, int size, int* info) {
  Check(typed_functions<T>.geqrf(solver, m, n, a, ld, taus, work, size, info), "geqrf");
}

// cusolverDn<t>orgqr_bufferSize(handle, m, n, k, A, lda, tau, lwork)
template <class T>
int OrgqrWork(Solver solver, int m, int n, int k, const T* a, int ld, const T* taus) {
  int size = 0;
  Check(typed_functions<T>.orgqr_bufferSize(solver, m, n, k, a, ld, taus, &size),
        "orgqr_bufferSize");
  return size;
}

// cusolverDn<t>orgqr(handle, m, n, k, A, lda, tau, work, lwork, devInfo)
template <class T>
void Orgqr(Solver solver, int m, int n, int k, T* a, int ld, const T* taus, T* work, int size,
           int* info) {
  Check(typed_functions<T>.orgqr(solver, m, n, k, a, ld, taus, work, size, info), "orgqr");
}

// cublas<t>trsm(handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb)
template <class T>
void Trsm(Blas blas, Side side, FillMode uplo, Transposition trans, Diagonal diag, int m, int n,
          const T* a, int lda, T* b, int ldb) {
  const T one(1);
  Check(typed_functions<T>.trsm(blas, side, uplo, trans, diag, m, n, &one, a, lda, b, ldb), "trsm");
}

// cublas<t>trsmBatched(handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb, batchCount)
template <class T>
void TrsmBatched(Blas blas, Side side, FillMode uplo, Transposition trans, Diagonal diag, int m,
                 int n, const T* const* a, int lda, T* const* b, int ldb, int batch) {
  const T one(1);
  Check(typed_functions<T>.trsmBatched(blas, side, uplo, trans, diag, m, n, &one, a, lda, b, ldb,
                                       batch),
        "trsmBatched");
}

// cublas<t>gemmStridedBatched(handle, transa, transb, m, n, k, alpha, A, lda, strideA, B, ldb,
//                             strideB, beta, C, ldc, strideC, batchCount)
template <class T>
void GemmStridedBatched(Blas blas, Transposition transa, Transposition transb, int m, int n, int k,
                        T alpha, const T* a, int lda, int64_t a_stride, const T* b, int ldb,
                        int64_t b_stride, T beta, T* c, int ldc, int64_t c_stride, int batch) {
  Check(
      typed_functions<T>.gemmStridedBatched(blas, transa, transb, m, n, k, &alpha, a, lda, a_stride,
                                            b, ldb, b_stride, &beta, c, ldc, c_stride, batch),
      "gemmStridedBatched");
}

// Eigenvalues w, ascending, of a batch of Hermitian matrices, with eigenvectors in place of `a`.
// One triangle is read.
template <class T, class Real>
class Syev {
 public:
  // The largest batch that works: it has failed beyond 2^31 bytes (jax issue 33062), and beyond
  // about 32000 matrices. Libraries before CUDA 12.6 take one matrix after another.
  static int64_t MostBatch(int64_t n) {
    if (functions.cusolverDnXsyevBatched == nullptr) return 1;
    const int64_t within_bytes =
        std::numeric_limits<int>::max() / (n * n * static_cast<int64_t>(sizeof(T)));
    return std::max<int64_t>(1, std::min<int64_t>(within_bytes, 16384));
  }

  // cusolverDnXsyevd_bufferSize(handle, params, jobz, uplo, n, dataTypeA, A, lda, dataTypeW, W,
  //     computeType, workspaceInBytesOnDevice, workspaceInBytesOnHost)
  // cusolverDnXsyevBatched_bufferSize(..., workspaceInBytesOnHost, batchSize)
  Syev(Solver solver, SolverParameters parameters, Job job, FillMode uplo, int64_t n, int64_t batch,
       const T* a, const Real* w)
      : solver_(solver), parameters_(parameters), job_(job), uplo_(uplo), n_(n), batch_(batch) {
    const auto& f = functions;
    if (batch == 1) {
      Check(f.cusolverDnXsyevd_bufferSize(solver, parameters, job, uplo, n, kDataType<T>, a, n,
                                          kDataType<Real>, w, kDataType<T>, &device_bytes,
                                          &host_bytes),
            "cusolverDnXsyevd_bufferSize");
    } else {
      Check(f.cusolverDnXsyevBatched_bufferSize(solver, parameters, job, uplo, n, kDataType<T>, a,
                                                n, kDataType<Real>, w, kDataType<T>, &device_bytes,
                                                &host_bytes, batch),
            "cusolverDnXsyevBatched_bufferSize");
    }
  }

  // cusolverDnXsyevd(handle, params, jobz, uplo, n, dataTypeA, A, lda, dataTypeW, W, computeType,
  //     bufferOnDevice, workspaceInBytesOnDevice, bufferOnHost, workspaceInBytesOnHost, info)
  // cusolverDnXsyevBatched(..., info, batchSize)
  // `count` matrices, at most as many as the workspace is for.
  void Run(T* a, Real* w, int64_t count, void* device_work, void* host_work, int* info) const {
    const auto& f = functions;
    if (batch_ == 1) {
      Check(f.cusolverDnXsyevd(solver_, parameters_, job_, uplo_, n_, kDataType<T>, a, n_,
                               kDataType<Real>, w, kDataType<T>, device_work, device_bytes,
                               host_work, host_bytes, info),
            "cusolverDnXsyevd");
    } else {
      Check(f.cusolverDnXsyevBatched(solver_, parameters_, job_, uplo_, n_, kDataType<T>, a, n_,
                                     kDataType<Real>, w, kDataType<T>, device_work, device_bytes,
                                     host_work, host_bytes, info, count),
            "cusolverDnXsyevBatched");
    }
  }

  size_t device_bytes = 0, host_bytes = 0;

 private:
  Solver solver_;
  SolverParameters parameters_;
  Job job_;
  FillMode uplo_;
  int64_t n_, batch_;
};

// Singular values s, descending, and vectors of an m by n matrix, m >= n, which is overwritten. The
// vectors are the first `cols` columns of U, n or m of them, and Vᴴ. No vectors are made if cols is
// 0.
template <class T, class Real>
class Gesvd {
 public:
  // cusolverDnXgesvd_bufferSize(handle, params, jobu, jobvt, m, n, dataTypeA, A, lda, dataTypeS, S,
  //     dataTypeU, U, ldu, dataTypeVT, VT, ldvt, computeType, workspaceInBytesOnDevice,
  //     workspaceInBytesOnHost)
  Gesvd(Solver solver, SolverParameters parameters, int64_t m, int64_t n, int64_t cols, const T* a,
        const Real* s, const T* u, const T* vh)
      : solver_(solver),
        parameters_(parameters),
        job_(cols == 0   ? 'N'
             : cols == n ? 'S'
                         : 'A'),
        m_(m),
        n_(n) {
    Check(functions.cusolverDnXgesvd_bufferSize(
              solver, parameters, job_, job_, m, n, kDataType<T>, a, m, kDataType<Real>, s,
              kDataType<T>, u, m, kDataType<T>, vh, n, kDataType<T>, &device_bytes, &host_bytes),
          "cusolverDnXgesvd_bufferSize");
  }

  // cusolverDnXgesvd(handle, params, jobu, jobvt, m, n, dataTypeA, A, lda, dataTypeS, S, dataTypeU,
  //     U, ldu, dataTypeVT, VT, ldvt, computeType, bufferOnDevice, workspaceInBytesOnDevice,
  //     bufferOnHost, workspaceInBytesOnHost, info)
  void Run(T* a, Real* s, T* u, T* vh, void* device_work, void* host_work, int* info) const {
    Check(functions.cusolverDnXgesvd(solver_, parameters_, job_, job_, m_, n_, kDataType<T>, a, m_,
                                     kDataType<Real>, s, kDataType<T>, u, m_, kDataType<T>, vh, n_,
                                     kDataType<T>, device_work, device_bytes, host_work, host_bytes,
                                     info),
          "cusolverDnXgesvd");
  }

  size_t device_bytes = 0, host_bytes = 0;

 private:
  Solver solver_;
  SolverParameters parameters_;
  signed char job_;
  int64_t m_, n_;
};

// Singular values s, descending, and vectors of an m by n matrix, m >= n, which is overwritten,
// from its polar decomposition. U has `cols` columns, n or m of them, and V is n by n.
template <class T, class Real>
class Gesvdp {
 public:
  // cusolverDnXgesvdp_bufferSize(handle, params, jobz, econ, m, n, dataTypeA, A, lda, dataTypeS, S,
  //     dataTypeU, U, ldu, dataTypeV, V, ldv, computeType, workspaceInBytesOnDevice,
  //     workspaceInBytesOnHost)
  Gesvdp(Solver solver, SolverParameters parameters, int64_t m, int64_t n, int64_t cols, const T* a,
         const Real* s, const T* u, const T* v)
      : solver_(solver),
        parameters_(parameters),
        job_(cols == 0 ? kNoVectors : kVectors),
        economic_(cols == m && m != n ? 0 : 1),
        m_(m),
        n_(n) {
    Check(functions.cusolverDnXgesvdp_bufferSize(
              solver, parameters, job_, economic_, m, n, kDataType<T>, a, m, kDataType<Real>, s,
              kDataType<T>, u, m, kDataType<T>, v, n, kDataType<T>, &device_bytes, &host_bytes),
          "cusolverDnXgesvdp_bufferSize");
  }

  // cusolverDnXgesvdp(handle, params, jobz, econ, m, n, dataTypeA, A, lda, dataTypeS, S, dataTypeU,
  //     U, ldu, dataTypeV, V, ldv, computeType, bufferOnDevice, workspaceInBytesOnDevice,
  //     bufferOnHost, workspaceInBytesOnHost, info, h_err_sigma)
  // Singular values near zero are moved away from it, so that the polar factor is unitary. The last
  // argument receives by how much, as an error of all singular values.
  void Run(T* a, Real* s, T* u, T* v, void* device_work, void* host_work, int* info,
           double* perturbation) const {
    Check(functions.cusolverDnXgesvdp(solver_, parameters_, job_, economic_, m_, n_, kDataType<T>,
                                      a, m_, kDataType<Real>, s, kDataType<T>, u, m_, kDataType<T>,
                                      v, n_, kDataType<T>, device_work, device_bytes, host_work,
                                      host_bytes, info, perturbation),
          "cusolverDnXgesvdp");
  }

  size_t device_bytes = 0, host_bytes = 0;

 private:
  Solver solver_;
  SolverParameters parameters_;
  Job job_;
  int economic_;
  int64_t m_, n_;
};

// Singular values s, descending, and vectors of an m by n matrix by Jacobi's method. The matrix is
// overwritten. U and V are square with `full`, else they have min(m, n) columns. Both are workspace
// if no vectors are requested.
template <class T, class Real>
class Gesvdj {
 public:
  // cusolverDn<t>gesvdj_bufferSize(handle, jobz, econ, m, n, A, lda, S, U, ldu, V, ldv, lwork,
  //     params)
  Gesvdj(Solver solver, JacobiParameters parameters, bool vectors, bool full, int m, int n,
         const T* a, const Real* s, const T* u, const T* v)
      : solver_(solver),
        parameters_(parameters),
        job_(vectors ? kVectors : kNoVectors),
        economic_(full ? 0 : 1),
        m_(m),
        n_(n) {
    Check(typed_functions<T>.gesvdj_bufferSize(solver, job_, economic_, m, n, a, m, s, u, m, v, n,
                                               &size_, parameters),
          "gesvdj_bufferSize");
    device_bytes = static_cast<size_t>(size_) * sizeof(T);
  }

  // cusolverDn<t>gesvdj(handle, jobz, econ, m, n, A, lda, S, U, ldu, V, ldv, work, lwork, info,
  //     params)
  void Run(T* a, Real* s, T* u, T* v, void* device_work, int* info) const {
    Check(typed_functions<T>.gesvdj(solver_, job_, economic_, m_, n_, a, m_, s, u, m_, v, n_,
                                    static_cast<T*>(device_work), size_, info, parameters_),
          "gesvdj");
  }

  size_t device_bytes = 0, host_bytes = 0;

 private:
  Solver solver_;
  JacobiParameters parameters_;
  Job job_;
  int economic_, m_, n_;
  int size_ = 0;
};

// Whether the library has Xgeev, as from CUDA 12.8 on.
inline bool HasGeev() {
  Load();
  return functions.cusolverDnXgeev != nullptr;
}

// Eigenvalues w, complex, of a general matrix, which is overwritten, and right eigenvectors of
// length 1 with a real largest element. A pair of conjugate eigenvalues of a real matrix has two
// real columns: the real and imaginary part of its first vector.
template <class T, class C>
class Geev {
 public:
  // cusolverDnXgeev_bufferSize(handle, params, jobvl, jobvr, n, dataTypeA, A, lda, dataTypeW, W,
  //     dataTypeVL, VL, ldvl, dataTypeVR, VR, ldvr, computeType, workspaceInBytesOnDevice,
  //     workspaceInBytesOnHost)
  Geev(Solver solver, SolverParameters parameters, Job job, int64_t n, const T* a, const C* w,
       const T* v)
      : solver_(solver), parameters_(parameters), job_(job), n_(n) {
    Check(functions.cusolverDnXgeev_bufferSize(solver, parameters, kNoVectors, job, n, kDataType<T>,
                                               a, n, kDataType<C>, w, kDataType<T>, nullptr, n,
                                               kDataType<T>, v, n, kDataType<T>, &device_bytes,
                                               &host_bytes),
          "cusolverDnXgeev_bufferSize");
  }

  // cusolverDnXgeev(handle, params, jobvl, jobvr, n, dataTypeA, A, lda, dataTypeW, W, dataTypeVL,
  //     VL, ldvl, dataTypeVR, VR, ldvr, computeType, bufferOnDevice, workspaceInBytesOnDevice,
  //     bufferOnHost, workspaceInBytesOnHost, info)
  void Run(T* a, C* w, T* v, void* device_work, void* host_work, int* info) const {
    Check(functions.cusolverDnXgeev(solver_, parameters_, kNoVectors, job_, n_, kDataType<T>, a, n_,
                                    kDataType<C>, w, kDataType<T>, nullptr, n_, kDataType<T>, v, n_,
                                    kDataType<T>, device_work, device_bytes, host_work, host_bytes,
                                    info),
          "cusolverDnXgeev");
  }

  size_t device_bytes = 0, host_bytes = 0;

 private:
  Solver solver_;
  SolverParameters parameters_;
  Job job_;
  int64_t n_;
};

}  // namespace linalg::cuda::vendor
