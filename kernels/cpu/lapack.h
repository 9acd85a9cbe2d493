// LAPACK and BLAS as typed functions. The module takes their addresses from
// scipy.linalg.cython_lapack and cython_blas when a handler first needs them.
//
// Matrices are column-major with leading dimension `ld`. A function returns LAPACK's info. LAPACK's
// integers have 32 bits: ToInt refuses larger sizes. The signature of the routine stands above each
// wrapper.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <memory>

#include "kernels/ffi.h"

namespace linalg {

// Uninitialised scratch memory. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Scratch(int64_t size) {
  return std::make_unique_for_overwrite<T[]>(static_cast<size_t>(std::max<int64_t>(size, 1)));
}

namespace lapack {

// One pointer per routine. The name in LAPACK is `prefix` + the member's name. For complex types
// orgqr is ungqr, org2r ung2r, orghr unghr, syevd heevd and sytrd hetrd. Where the complex routine
// takes other arguments, the pointer has no type. There is no complex stevd.
template <class T>
struct Routines {
  using R = Real<T>;

  void (*geqrf)(int*, int*, T*, int*, T*, T*, int*, int*);
  void (*geqr2)(int*, int*, T*, int*, T*, T*, int*);
  void (*orgqr)(int*, int*, int*, T*, int*, T*, T*, int*, int*);
  void (*org2r)(int*, int*, int*, T*, int*, T*, T*, int*);
  void (*geqp3)();
  void (*syevd)();
  void (*sytrd)(char*, int*, T*, int*, R*, R*, T*, T*, int*, int*);
  void (*stevd)(char*, int*, R*, R*, R*, int*, R*, int*, int*, int*, int*);
  void (*gesdd)();
  void (*geev)();
  void (*gees)();
  void (*trsen)();
  void (*ggev)();
  void (*gges)();
  void (*tgsen)();
  void (*gehrd)(int*, int*, int*, T*, int*, T*, T*, int*, int*);
  void (*orghr)(int*, int*, int*, T*, int*, T*, T*, int*, int*);
  void (*trsm)(char*, char*, char*, char*, int*, int*, T*, T*, int*, T*, int*);
  void (*trsv)(char*, char*, char*, int*, T*, int*, T*, int*);

  // Calls visit(name, pointer) with each routine's full LAPACK name and a pointer to its member.
  template <class Visit>
  void ForEach(Visit&& visit) {
    const char prefix = kIsComplex<T> ? (sizeof(T) == 8 ? 'c' : 'z') : (sizeof(T) == 4 ? 's' : 'd');
    const auto member = [&](const char* name, auto* pointer) {
      visit(prefix + std::string(name), reinterpret_cast<void**>(pointer));
    };
    member("geqrf", &geqrf);
    member("geqr2", &geqr2);
    member(kIsComplex<T> ? "ungqr" : "orgqr", &orgqr);
    member(kIsComplex<T> ? "ung2r" : "org2r", &org2r);
    member("geqp3", &geqp3);
    member(kIsComplex<T> ? "heevd" : "syevd", &syevd);
    member(kIsComplex<T> ? "hetrd" : "sytrd", &sytrd);
    if constexpr (!kIsComplex<T>) member("stevd", &stevd);
    member("gesdd", &gesdd);
    member("geev", &geev);
    member("gees", &gees);
    member("trsen", &trsen);
    member("ggev", &ggev);
    member("gges", &gges);
    member("tgsen", &tgsen);
    member("gehrd", &gehrd);
    member(kIsComplex<T> ? "unghr" : "orghr", &orghr);
    member("trsm", &trsm);
    member("trsv", &trsv);
  }
};

// Sets how the module fills the tables. `loader` is called once, before the first routine is used.
void SetLoader(void (*loader)());
// Fills the tables on the first call. Every handler that calls LAPACK does this first. Throws what
// the loader throws.
void Load();

template <class T>
inline Routines<T> routines{};

// The block size for workspaces. It is at least that of LAPACK's ILAENV.
inline constexpr int64_t kBlock = 64;

// GEQRF(M, N, A, LDA, TAU, WORK, LWORK, INFO)
inline int64_t QrWorkSize(int64_t n) { return n * kBlock; }
template <class T>
void Geqrf(int m, int n, T* a, int ld, T* taus, T* work) {
  int info = 0, size = ToInt(QrWorkSize(n));
  routines<T>.geqrf(&m, &n, a, &ld, taus, work, &size, &info);
}

// GEQR2(M, N, A, LDA, TAU, WORK, INFO)
template <class T>
void Geqr2(int m, int n, T* a, int ld, T* taus, T* work) {
  int info = 0;
  routines<T>.geqr2(&m, &n, a, &ld, taus, work, &info);
}

// ORGQR(M, N, K, A, LDA, TAU, WORK, LWORK, INFO)
template <class T>
void Orgqr(int m, int n, int k, T* a, int ld, T* taus, T* work) {
  int info = 0, size = ToInt(QrWorkSize(n));
  routines<T>.orgqr(&m, &n, &k, a, &ld, taus, work, &size, &info);
}

// ORG2R(M, N, K, A, LDA, TAU, WORK, INFO)
template <class T>
void Org2r(int m, int n, int k, T* a, int ld, T* taus, T* work) {
  int info = 0;
  routines<T>.org2r(&m, &n, &k, a, &ld, taus, work, &info);
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

// SYTRD(UPLO, N, A, LDA, D, E, TAU, WORK, LWORK, INFO)
inline int64_t SytrdWork(int64_t n) { return n * kBlock; }
template <class T>
void Sytrd(char uplo, int n, T* a, Real<T>* d, Real<T>* e, T* taus, T* work) {
  int info = 0, size = ToInt(SytrdWork(n));
  routines<T>.sytrd(&uplo, &n, a, &n, d, e, taus, work, &size, &info);
}

// The size of a workspace, from a routine's answer to a query. In single precision the answer may
// be rounded down.
template <class T>
int WorkSize(T answer) {
  constexpr double kSlack = 1 + std::numeric_limits<Real<T>>::epsilon();
  return ToInt(static_cast<int64_t>(std::ceil(std::real(answer) * kSlack)));
}

// STEVD(JOBZ, N, D, E, Z, LDZ, WORK, LWORK, IWORK, LIWORK, INFO)
template <class R>
class Stevd {
 public:
  Stevd(int64_t n, bool vectors)
      : n_(ToInt(n)),
        vectors_(vectors),
        work_size_(ToInt(vectors ? 1 + 4 * n + n * n : 1)),
        int_work_size_(ToInt(vectors ? 3 + 5 * n : 1)),
        work_(Scratch<R>(work_size_)),
        int_work_(Scratch<int>(int_work_size_)) {}

  int operator()(R* d, R* e, R* z) {
    int info = 0;
    char job = vectors_ ? 'V' : 'N';
    routines<R>.stevd(&job, &n_, d, e, z, &n_, work_.get(), &work_size_, int_work_.get(),
                      &int_work_size_, &info);
    return info;
  }

 private:
  int n_;
  bool vectors_;
  int work_size_, int_work_size_;
  std::unique_ptr<R[]> work_;
  std::unique_ptr<int[]> int_work_;
};

// real:    GESDD(JOBZ, M, N, A, LDA, S, U, LDU, VT, LDVT, WORK, LWORK, IWORK, INFO)
// complex: GESDD(JOBZ, M, N, A, LDA, S, U, LDU, VT, LDVT, WORK, LWORK, RWORK, IWORK, INFO)
// `job` is 'A' for square U and VT, 'S' for min(m, n) columns and rows, 'N' for neither.
template <class T>
class Gesdd {
 public:
  Gesdd(char job, int64_t m, int64_t n)
      : job_(job),
        m_(ToInt(m)),
        n_(ToInt(n)),
        real_work_(Scratch<Real<T>>(kIsComplex<T> ? RealWork(job, m, n) : 0)),
        int_work_(Scratch<int>(8 * std::min(m, n))) {
    T answer(0);
    work_size_ = -1;
    Call(nullptr, nullptr, nullptr, nullptr, &answer);
    work_size_ = WorkSize(answer);
    work_ = Scratch<T>(work_size_);
  }

  int operator()(T* a, Real<T>* s, T* u, T* vt) { return Call(a, s, u, vt, work_.get()); }

 private:
  static int64_t RealWork(char job, int64_t m, int64_t n) {
    const int64_t least = std::min(m, n), most = std::max(m, n);
    if (job == 'N') return 7 * least;
    return least * std::max(5 * least + 7, 2 * most + 2 * least + 1);
  }

  int Call(T* a, Real<T>* s, T* u, T* vt, T* work) {
    int info = 0, ldvt = job_ == 'A' ? n_ : std::min(m_, n_);
    if constexpr (kIsComplex<T>) {
      using Routine = void (*)(char*, int*, int*, T*, int*, Real<T>*, T*, int*, T*, int*, T*, int*,
                               Real<T>*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.gesdd)(&job_, &m_, &n_, a, &m_, s, u, &m_, vt, &ldvt,
                                                   work, &work_size_, real_work_.get(),
                                                   int_work_.get(), &info);
    } else {
      using Routine =
          void (*)(char*, int*, int*, T*, int*, T*, T*, int*, T*, int*, T*, int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.gesdd)(&job_, &m_, &n_, a, &m_, s, u, &m_, vt, &ldvt,
                                                   work, &work_size_, int_work_.get(), &info);
    }
    return info;
  }

  char job_;
  int m_, n_, work_size_;
  std::unique_ptr<T[]> work_;
  std::unique_ptr<Real<T>[]> real_work_;
  std::unique_ptr<int[]> int_work_;
};

// real:    GEEV(JOBVL, JOBVR, N, A, LDA, WR, WI, VL, LDVL, VR, LDVR, WORK, LWORK, INFO)
// complex: GEEV(JOBVL, JOBVR, N, A, LDA, W, VL, LDVL, VR, LDVR, WORK, LWORK, RWORK, INFO)
template <class T>
class Geev {
 public:
  Geev(int64_t n, bool left, bool right)
      : n_(ToInt(n)),
        left_(left ? 'V' : 'N'),
        right_(right ? 'V' : 'N'),
        parts_(Scratch<Real<T>>(2 * n)) {
    T answer(0);
    work_size_ = -1;
    Call(nullptr, nullptr, nullptr, nullptr, &answer);
    work_size_ = WorkSize(answer);
    work_ = Scratch<T>(work_size_);
  }

  // Leaves vectors in LAPACK's format: a real matrix's pair of complex eigenvalues has two columns,
  // the real and the imaginary part.
  int operator()(T* a, std::complex<Real<T>>* w, T* left, T* right) {
    return Call(a, w, left, right, work_.get());
  }

 private:
  int Call(T* a, std::complex<Real<T>>* w, T* left, T* right, T* work) {
    int info = 0;
    if constexpr (kIsComplex<T>) {
      using Routine =
          void (*)(char*, char*, int*, T*, int*, T*, T*, int*, T*, int*, T*, int*, Real<T>*, int*);
      reinterpret_cast<Routine>(routines<T>.geev)(&left_, &right_, &n_, a, &n_, w, left, &n_, right,
                                                  &n_, work, &work_size_, parts_.get(), &info);
    } else {
      using Routine =
          void (*)(char*, char*, int*, T*, int*, T*, T*, T*, int*, T*, int*, T*, int*, int*);
      T* const imaginary = parts_.get() + n_;
      reinterpret_cast<Routine>(routines<T>.geev)(&left_, &right_, &n_, a, &n_, parts_.get(),
                                                  imaginary, left, &n_, right, &n_, work,
                                                  &work_size_, &info);
      if (w != nullptr) {
        for (int i = 0; i < n_; ++i) w[i] = {parts_[i], imaginary[i]};
      }
    }
    return info;
  }

  int n_, work_size_;
  char left_, right_;
  std::unique_ptr<T[]> work_;
  std::unique_ptr<Real<T>[]> parts_;
};

// real:    GEES(JOBVS, SORT, SELECT, N, A, LDA, SDIM, WR, WI, VS, LDVS, WORK, LWORK, BWORK, INFO)
// complex: GEES(JOBVS, SORT, SELECT, N, A, LDA, SDIM, W, VS, LDVS, WORK, LWORK, RWORK, BWORK, INFO)
template <class T>
class Gees {
 public:
  explicit Gees(int64_t n)
      : n_(ToInt(n)), values_(Scratch<T>(2 * n)), real_work_(Scratch<Real<T>>(n)) {
    T answer(0);
    work_size_ = -1;
    Call(nullptr, nullptr, &answer);
    work_size_ = WorkSize(answer);
    work_ = Scratch<T>(work_size_);
  }

  int operator()(T* a, T* vectors) { return Call(a, vectors, work_.get()); }

 private:
  int Call(T* a, T* vectors, T* work) {
    int info = 0, selected = 0, unused = 0;
    char job = 'V', sort = 'N';
    if constexpr (kIsComplex<T>) {
      using Routine = void (*)(char*, char*, void*, int*, T*, int*, int*, T*, T*, int*, T*, int*,
                               Real<T>*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.gees)(&job, &sort, nullptr, &n_, a, &n_, &selected,
                                                  values_.get(), vectors, &n_, work, &work_size_,
                                                  real_work_.get(), &unused, &info);
    } else {
      using Routine = void (*)(char*, char*, void*, int*, T*, int*, int*, T*, T*, T*, int*, T*,
                               int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.gees)(&job, &sort, nullptr, &n_, a, &n_, &selected,
                                                  values_.get(), values_.get() + n_, vectors, &n_,
                                                  work, &work_size_, &unused, &info);
    }
    return info;
  }

  int n_, work_size_;
  std::unique_ptr<T[]> work_, values_;
  std::unique_ptr<Real<T>[]> real_work_;
};

// real:    TRSEN(JOB, COMPQ, SELECT, N, T, LDT, Q, LDQ, WR, WI, M, S, SEP, WORK, LWORK, IWORK,
//                LIWORK, INFO)
// complex: TRSEN(JOB, COMPQ, SELECT, N, T, LDT, Q, LDQ, W, M, S, SEP, WORK, LWORK, INFO)
template <class T>
class Trsen {
 public:
  explicit Trsen(int64_t n) : n_(ToInt(n)), values_(Scratch<T>(2 * n)), work_(Scratch<T>(n)) {}

  int operator()(int* select, T* t, T* q) {
    int info = 0, selected = 0, size = std::max(n_, 1), int_work = 0, one = 1;
    char job = 'N', vectors = 'V';
    Real<T> condition = 0, separation = 0;
    if constexpr (kIsComplex<T>) {
      using Routine = void (*)(char*, char*, int*, int*, T*, int*, T*, int*, T*, int*, Real<T>*,
                               Real<T>*, T*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.trsen)(&job, &vectors, select, &n_, t, &n_, q, &n_,
                                                   values_.get(), &selected, &condition,
                                                   &separation, work_.get(), &size, &info);
    } else {
      using Routine = void (*)(char*, char*, int*, int*, T*, int*, T*, int*, T*, T*, int*, T*, T*,
                               T*, int*, int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.trsen)(
          &job, &vectors, select, &n_, t, &n_, q, &n_, values_.get(), values_.get() + n_, &selected,
          &condition, &separation, work_.get(), &size, &int_work, &one, &info);
    }
    return info;
  }

 private:
  int n_;
  std::unique_ptr<T[]> values_, work_;
};

// The numerators of a pencil's eigenvalues, which LAPACK returns as two arrays for real matrices.
template <class T>
class Numerators {
 public:
  explicit Numerators(int64_t n) : n_(n), parts_(Scratch<Real<T>>(kIsComplex<T> ? 0 : 2 * n)) {}

  Real<T>* real() { return parts_.get(); }
  Real<T>* imaginary() { return parts_.get() + n_; }

  void Write(std::complex<Real<T>>* alpha) const {
    for (int64_t i = 0; i < n_; ++i) alpha[i] = {parts_[i], parts_[n_ + i]};
  }

 private:
  int64_t n_;
  std::unique_ptr<Real<T>[]> parts_;
};

// real:    GGEV(JOBVL, JOBVR, N, A, LDA, B, LDB, ALPHAR, ALPHAI, BETA, VL, LDVL, VR, LDVR, WORK,
//               LWORK, INFO)
// complex: GGEV(JOBVL, JOBVR, N, A, LDA, B, LDB, ALPHA, BETA, VL, LDVL, VR, LDVR, WORK, LWORK,
//               RWORK, INFO)
template <class T>
class Ggev {
 public:
  Ggev(int64_t n, bool left, bool right)
      : n_(ToInt(n)),
        of_left_(left ? 'V' : 'N'),
        of_right_(right ? 'V' : 'N'),
        alpha_(n),
        real_work_(Scratch<Real<T>>(kIsComplex<T> ? 8 * n : 0)) {
    T answer(0);
    work_size_ = -1;
    Call(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &answer);
    work_size_ = WorkSize(answer);
    work_ = Scratch<T>(work_size_);
  }

  // Leaves vectors in LAPACK's format, as Geev does.
  int operator()(T* a, T* b, std::complex<Real<T>>* alpha, T* beta, T* left, T* right) {
    return Call(a, b, alpha, beta, left, right, work_.get());
  }

 private:
  int Call(T* a, T* b, std::complex<Real<T>>* alpha, T* beta, T* left, T* right, T* work) {
    int info = 0;
    if constexpr (kIsComplex<T>) {
      using Routine = void (*)(char*, char*, int*, T*, int*, T*, int*, T*, T*, T*, int*, T*, int*,
                               T*, int*, Real<T>*, int*);
      reinterpret_cast<Routine>(routines<T>.ggev)(&of_left_, &of_right_, &n_, a, &n_, b, &n_, alpha,
                                                  beta, left, &n_, right, &n_, work, &work_size_,
                                                  real_work_.get(), &info);
    } else {
      using Routine = void (*)(char*, char*, int*, T*, int*, T*, int*, T*, T*, T*, T*, int*, T*,
                               int*, T*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.ggev)(&of_left_, &of_right_, &n_, a, &n_, b, &n_,
                                                  alpha_.real(), alpha_.imaginary(), beta, left,
                                                  &n_, right, &n_, work, &work_size_, &info);
      if (alpha != nullptr) alpha_.Write(alpha);
    }
    return info;
  }

  int n_, work_size_;
  char of_left_, of_right_;
  Numerators<T> alpha_;
  std::unique_ptr<Real<T>[]> real_work_;
  std::unique_ptr<T[]> work_;
};

// real:    GGES(JOBVSL, JOBVSR, SORT, SELCTG, N, A, LDA, B, LDB, SDIM, ALPHAR, ALPHAI, BETA, VSL,
//               LDVSL, VSR, LDVSR, WORK, LWORK, BWORK, INFO)
// complex: GGES(JOBVSL, JOBVSR, SORT, SELCTG, N, A, LDA, B, LDB, SDIM, ALPHA, BETA, VSL, LDVSL,
//               VSR, LDVSR, WORK, LWORK, RWORK, BWORK, INFO)
template <class T>
class Gges {
 public:
  explicit Gges(int64_t n)
      : n_(ToInt(n)), alpha_(n), real_work_(Scratch<Real<T>>(kIsComplex<T> ? 8 * n : 0)) {
    T answer(0);
    work_size_ = -1;
    Call(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &answer);
    work_size_ = WorkSize(answer);
    work_ = Scratch<T>(work_size_);
  }

  int operator()(T* a, T* b, std::complex<Real<T>>* alpha, T* beta, T* q, T* z) {
    return Call(a, b, alpha, beta, q, z, work_.get());
  }

 private:
  int Call(T* a, T* b, std::complex<Real<T>>* alpha, T* beta, T* q, T* z, T* work) {
    int info = 0, selected = 0, unused = 0;
    char job = 'V', sort = 'N';
    if constexpr (kIsComplex<T>) {
      using Routine = void (*)(char*, char*, char*, void*, int*, T*, int*, T*, int*, int*, T*, T*,
                               T*, int*, T*, int*, T*, int*, Real<T>*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.gges)(&job, &job, &sort, nullptr, &n_, a, &n_, b, &n_,
                                                  &selected, alpha, beta, q, &n_, z, &n_, work,
                                                  &work_size_, real_work_.get(), &unused, &info);
    } else {
      using Routine = void (*)(char*, char*, char*, void*, int*, T*, int*, T*, int*, int*, T*, T*,
                               T*, T*, int*, T*, int*, T*, int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.gges)(
          &job, &job, &sort, nullptr, &n_, a, &n_, b, &n_, &selected, alpha_.real(),
          alpha_.imaginary(), beta, q, &n_, z, &n_, work, &work_size_, &unused, &info);
      if (alpha != nullptr) alpha_.Write(alpha);
    }
    return info;
  }

  int n_, work_size_;
  Numerators<T> alpha_;
  std::unique_ptr<Real<T>[]> real_work_;
  std::unique_ptr<T[]> work_;
};

// real:    TGSEN(IJOB, WANTQ, WANTZ, SELECT, N, A, LDA, B, LDB, ALPHAR, ALPHAI, BETA, Q, LDQ, Z,
//                LDZ, M, PL, PR, DIF, WORK, LWORK, IWORK, LIWORK, INFO)
// complex: TGSEN(IJOB, WANTQ, WANTZ, SELECT, N, A, LDA, B, LDB, ALPHA, BETA, Q, LDQ, Z, LDZ, M, PL,
//                PR, DIF, WORK, LWORK, IWORK, LIWORK, INFO)
template <class T>
class Tgsen {
 public:
  explicit Tgsen(int64_t n)
      : n_(ToInt(n)), work_size_(ToInt(4 * n + 16)), alpha_(n), work_(Scratch<T>(4 * n + 16)) {}

  int operator()(int* select, T* a, T* b, std::complex<Real<T>>* alpha, T* beta, T* q, T* z) {
    int info = 0, job = 0, yes = 1, selected = 0, int_work[1] = {0};
    int int_work_size = 1;
    Real<T> left = 0, right = 0, separation[2] = {0, 0};
    if constexpr (kIsComplex<T>) {
      using Routine =
          void (*)(int*, int*, int*, int*, int*, T*, int*, T*, int*, T*, T*, T*, int*, T*, int*,
                   int*, Real<T>*, Real<T>*, Real<T>*, T*, int*, int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.tgsen)(
          &job, &yes, &yes, select, &n_, a, &n_, b, &n_, alpha, beta, q, &n_, z, &n_, &selected,
          &left, &right, separation, work_.get(), &work_size_, int_work, &int_work_size, &info);
    } else {
      using Routine = void (*)(int*, int*, int*, int*, int*, T*, int*, T*, int*, T*, T*, T*, T*,
                               int*, T*, int*, int*, T*, T*, T*, T*, int*, int*, int*, int*);
      reinterpret_cast<Routine>(routines<T>.tgsen)(
          &job, &yes, &yes, select, &n_, a, &n_, b, &n_, alpha_.real(), alpha_.imaginary(), beta, q,
          &n_, z, &n_, &selected, &left, &right, separation, work_.get(), &work_size_, int_work,
          &int_work_size, &info);
      alpha_.Write(alpha);
    }
    return info;
  }

 private:
  int n_, work_size_;
  Numerators<T> alpha_;
  std::unique_ptr<T[]> work_;
};

// GEHRD(N, ILO, IHI, A, LDA, TAU, WORK, LWORK, INFO)
// ORGHR(N, ILO, IHI, A, LDA, TAU, WORK, LWORK, INFO)
inline int64_t HessenbergWork(int64_t n) { return n * kBlock + kBlock * (kBlock + 1); }
template <class T>
void Gehrd(int n, T* a, T* taus, T* work) {
  int info = 0, first = 1, size = ToInt(HessenbergWork(n));
  routines<T>.gehrd(&n, &first, &n, a, &n, taus, work, &size, &info);
}
template <class T>
void Orghr(int n, T* a, T* taus, T* work) {
  int info = 0, first = 1, size = ToInt(HessenbergWork(n));
  routines<T>.orghr(&n, &first, &n, a, &n, taus, work, &size, &info);
}

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
