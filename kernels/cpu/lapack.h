// LAPACK and BLAS as typed functions, called through pointers that the module takes from
// scipy.linalg.cython_lapack and cython_blas when a handler first needs them.
//
// Matrices are column-major with leading dimension `ld`; a function returns LAPACK's info. Sizes
// are LAPACK's 32-bit integers: ToInt refuses what does not fit. Above each wrapper stands the
// signature of the routine that it calls.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>

#include "kernels/ffi.h"

namespace linalg {

inline int ToInt(int64_t size) {
  if (size > std::numeric_limits<int>::max()) {
    throw std::length_error("the matrix is too large for LAPACK's 32-bit integers");
  }
  return static_cast<int>(size);
}

// Uninitialised scratch memory; throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Scratch(int64_t size) {
  return std::make_unique_for_overwrite<T[]>(static_cast<size_t>(std::max<int64_t>(size, 1)));
}

namespace lapack {

// One pointer per routine; the name in LAPACK is `prefix` + the member's name, but for complex
// types orgqr is ungqr, org2r ung2r and syevd heevd.
template <class T>
struct Routines {
  using R = Real<T>;

  void (*potrf)(char*, int*, T*, int*, int*);
  void (*getrf)(int*, int*, T*, int*, int*, int*);
  void (*getri)(int*, T*, int*, int*, T*, int*, int*);
  void (*geqrf)(int*, int*, T*, int*, T*, T*, int*, int*);
  void (*geqr2)(int*, int*, T*, int*, T*, T*, int*);
  void (*orgqr)(int*, int*, int*, T*, int*, T*, T*, int*, int*);
  void (*org2r)(int*, int*, int*, T*, int*, T*, T*, int*);
  void (*geqp3)();  // the complex routine takes one argument more
  void (*syevd)();
  void (*trsm)(char*, char*, char*, char*, int*, int*, T*, T*, int*, T*, int*);
  void (*trsv)(char*, char*, char*, int*, T*, int*, T*, int*);

  // Calls visit(name, pointer) with each routine's full LAPACK name and a pointer to its member.
  template <class Visit>
  void ForEach(Visit&& visit) {
    const char prefix = kIsComplex<T> ? (sizeof(T) == 8 ? 'c' : 'z') : (sizeof(T) == 4 ? 's' : 'd');
    const auto member = [&](const char* name, auto* pointer) {
      visit(prefix + std::string(name), reinterpret_cast<void**>(pointer));
    };
    member("potrf", &potrf);
    member("getrf", &getrf);
    member("getri", &getri);
    member("geqrf", &geqrf);
    member("geqr2", &geqr2);
    member(kIsComplex<T> ? "ungqr" : "orgqr", &orgqr);
    member(kIsComplex<T> ? "ung2r" : "org2r", &org2r);
    member("geqp3", &geqp3);
    member(kIsComplex<T> ? "heevd" : "syevd", &syevd);
    member("trsm", &trsm);
    member("trsv", &trsv);
  }
};

// How the module fills the tables; called once, before the first routine is used.
void SetLoader(void (*loader)());
// Fills the tables unless that is done. Every handler that calls LAPACK does this first; throws
// what the loader throws.
void Load();

template <class T>
inline Routines<T> routines{};

// POTRF(UPLO, N, A, LDA, INFO)
template <class T>
int Potrf(char uplo, int n, T* a, int ld) {
  int info = 0;
  routines<T>.potrf(&uplo, &n, a, &ld, &info);
  return info;
}

// GETRF(M, N, A, LDA, IPIV, INFO)
template <class T>
int Getrf(int m, int n, T* a, int ld, int* pivots) {
  int info = 0;
  routines<T>.getrf(&m, &n, a, &ld, pivots, &info);
  return info;
}

// Block size that workspaces are made for: at least what LAPACK's ILAENV asks for.
inline constexpr int64_t kBlock = 64;

// GETRI(N, A, LDA, IPIV, WORK, LWORK, INFO)
inline int64_t GetriWork(int64_t n) { return n * kBlock; }
template <class T>
int Getri(int n, T* a, int ld, int* pivots, T* work) {
  int info = 0, size = ToInt(GetriWork(n));
  routines<T>.getri(&n, a, &ld, pivots, work, &size, &info);
  return info;
}

// Up to this many reflectors the blocked routines call the unblocked ones, after some bookkeeping
// that takes longer than a tiny matrix: those are called directly.
inline constexpr int kUnblockedReflectors = 128;

// GEQRF(M, N, A, LDA, TAU, WORK, LWORK, INFO)
// GEQR2(M, N, A, LDA, TAU, WORK, INFO)
inline int64_t QrWork(int64_t n) { return n * kBlock; }
template <class T>
void Geqrf(int m, int n, T* a, int ld, T* taus, T* work) {
  int info = 0, size = ToInt(QrWork(n));
  if (std::min(m, n) <= kUnblockedReflectors) {
    routines<T>.geqr2(&m, &n, a, &ld, taus, work, &info);
  } else {
    routines<T>.geqrf(&m, &n, a, &ld, taus, work, &size, &info);
  }
}

// ORGQR(M, N, K, A, LDA, TAU, WORK, LWORK, INFO)
// ORG2R(M, N, K, A, LDA, TAU, WORK, INFO)
template <class T>
void Orgqr(int m, int n, int k, T* a, int ld, T* taus, T* work) {
  int info = 0, size = ToInt(QrWork(n));
  if (k <= kUnblockedReflectors) {
    routines<T>.org2r(&m, &n, &k, a, &ld, taus, work, &info);
  } else {
    routines<T>.orgqr(&m, &n, &k, a, &ld, taus, work, &size, &info);
  }
}

// real:    GEQP3(M, N, A, LDA, JPVT, TAU, WORK, LWORK, INFO)
// complex: GEQP3(M, N, A, LDA, JPVT, TAU, WORK, LWORK, RWORK, INFO)
inline int64_t Geqp3Work(int64_t n) { return 2 * n + (n + 1) * kBlock; }
inline int64_t Geqp3RealWork(int64_t n) { return 2 * n; }
template <class T>
void Geqp3(int m, int n, T* a, int ld, int* pivots, T* taus, T* work, Real<T>* real_work) {
  int info = 0, size = ToInt(Geqp3Work(n));
  if constexpr (kIsComplex<T>) {
    using Routine = void (*)(int*, int*, T*, int*, int*, T*, T*, int*, Real<T>*, int*);
    reinterpret_cast<Routine>(routines<T>.geqp3)(&m, &n, a, &ld, pivots, taus, work, &size,
                                                 real_work, &info);
  } else {
    using Routine = void (*)(int*, int*, T*, int*, int*, T*, T*, int*, int*);
    reinterpret_cast<Routine>(routines<T>.geqp3)(&m, &n, a, &ld, pivots, taus, work, &size, &info);
  }
}

// real:    SYEVD(JOBZ, UPLO, N, A, LDA, W, WORK, LWORK, IWORK, LIWORK, INFO)
// complex: HEEVD(JOBZ, UPLO, N, A, LDA, W, WORK, LWORK, RWORK, LRWORK, IWORK, LIWORK, INFO)
template <class T>
class Syevd {
 public:
  Syevd(int64_t n, bool vectors)
      : n_(ToInt(n)),
        vectors_(vectors),
        work_size_(ToInt(std::max((2 + kBlock) * n, Least(n, vectors)))),
        real_work_size_(ToInt(vectors ? 1 + 5 * n + 2 * n * n : n + 1)),
        int_work_size_(ToInt(vectors ? 3 + 5 * n : 1)),
        work_(Scratch<T>(work_size_)),
        real_work_(Scratch<Real<T>>(kIsComplex<T> ? real_work_size_ : 0)),
        int_work_(Scratch<int>(int_work_size_)) {}

  int operator()(char uplo, T* a, int ld, Real<T>* w) {
    int info = 0;
    char job = vectors_ ? 'V' : 'N';
    if constexpr (kIsComplex<T>) {
      using Routine = void (*)(char*, char*, int*, T*, int*, Real<T>*, T*, int*, Real<T>*, int*,
                               int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.syevd)(&job, &uplo, &n_, a, &ld, w, work_.get(),
                                                   &work_size_, real_work_.get(), &real_work_size_,
                                                   int_work_.get(), &int_work_size_, &info);
    } else {
      using Routine = void (*)(char*, char*, int*, T*, int*, T*, T*, int*, int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.syevd)(&job, &uplo, &n_, a, &ld, w, work_.get(),
                                                   &work_size_, int_work_.get(), &int_work_size_,
                                                   &info);
    }
    return info;
  }

 private:
  static int64_t Least(int64_t n, bool vectors) {
    if (kIsComplex<T>) return vectors ? 2 * n + n * n : n + 1;
    return vectors ? 1 + 6 * n + 2 * n * n : 2 * n + 1;
  }

  int n_;
  bool vectors_;
  int work_size_, real_work_size_, int_work_size_;
  std::unique_ptr<T[]> work_;
  std::unique_ptr<Real<T>[]> real_work_;
  std::unique_ptr<int[]> int_work_;
};

// TRSM(SIDE, UPLO, TRANSA, DIAG, M, N, ALPHA, A, LDA, B, LDB)
template <class T>
void Trsm(char side, char uplo, char trans, char diag, int m, int n, const T* a, int lda, T* b,
          int ldb) {
  T one(1);
  routines<T>.trsm(&side, &uplo, &trans, &diag, &m, &n, &one, const_cast<T*>(a), &lda, b, &ldb);
}

// TRSV(UPLO, TRANS, DIAG, N, A, LDA, X, INCX)
template <class T>
void Trsv(char uplo, char trans, char diag, int n, const T* a, int lda, T* x) {
  int step = 1;
  routines<T>.trsv(&uplo, &trans, &diag, &n, const_cast<T*>(a), &lda, x, &step);
}

}  // namespace lapack
}  // namespace linalg
