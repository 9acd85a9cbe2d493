// Cholesky factors of Hermitian positive definite matrices, and solves with them.
//
// One matrix per thread or per team of threads where it fits in shared memory. Beyond, cuSOLVER's
// potrf works in place in the output: a row-major lower triangle is a column-major upper one, so
// nothing is transposed. One pass before it copies and symmetrises the triangle; one after it
// clears the other one and puts NaN where the matrix is not positive definite.
#include "kernels/arithmetic/hermitian.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"
#include "kernels/team/cholesky.h"
#include "kernels/team/hermitian.h"

namespace linalg::cuda {
namespace {

template <class E>
struct CholeskyOperands {
  const E* a;
  E* factor;
  int32_t* info;
  int n;
  HermitianPart part;
};

template <class E>
struct SmallCholesky {
  using V = RealElement<E>;
  CholeskyOperands<E> of;
  Staged matrix, info;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(of.a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    E* const a = At<E>(slice, matrix.offset);
    *At<V>(slice, info.offset) = small::CholeskyFactor(a, of.n, of.part);
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Store(of.factor, first, count, memory, bytes);
    info.StoreIntegers<V>(of.info, first, count, memory, bytes);
  }
};

template <class E>
struct TeamCholesky {
  static constexpr int kMostThreads = kBlockThreads;
  CholeskyOperands<E> of;
  int ld;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = of.n;
    E* const a = At<E>(slice, 0);
    LoadMatrix(team, of.a + i * n * n, n, n, a, ld);
    team::LowerHermitianPart(team, n, a, ld, of.part);
    const int failed = team::Cholesky(team, n, a, ld);
    StoreMatrix(team, n, n, of.factor + i * n * n, [&](int row, int col) {
      if (of.part.lower ? col > row : col < row) return E{};
      if (failed != 0) return NaN<E>();
      return of.part.lower ? a[row * ld + col] : Conj(a[col * ld + row]);
    });
    team.Phase([&](int thread) {
      if (thread == 0) of.info[i] = failed;
    });
  }
};

// The triangle that potrf reads, of the Hermitian part.
template <class E>
struct CopyTriangle {
  CholeskyOperands<E> of;

  __device__ void operator()(int64_t place) const {
    const int64_t n = of.n, matrix = place / (n * n), i = place / n % n, j = place % n;
    if (of.part.lower ? j > i : j < i) return;
    const E* const a = of.a + matrix * n * n;
    const E x = of.part.At(i, j, [=](int64_t k, int64_t l) { return LoadGlobal(a + k * n + l); });
    StoreGlobal<E>(x, of.factor + place);
  }
};

// Not every routine finds that NaN or infinity is no positive pivot.
template <class E>
struct CheckDiagonal {
  static constexpr int kMostThreads = kBlockThreads;
  CholeskyOperands<E> of;

  __device__ void Run(const Team& team, int64_t matrix, char*) const {
    using V = RealElement<E>;
    const int64_t n = of.n;
    const E* const factor = of.factor + matrix * n * n;
    const int found = of.info[matrix], end = found > 0 ? found - 1 : of.n;
    const auto first = team.Best<V>([&](int thread) {
      team::Largest<V> bad{V(0), of.n};
      for (int i = thread; i < end; i += team.size()) {
        const V x = Re(factor[i * n + i]);
        const bool good = x > V(0) && x < std::numeric_limits<V>::infinity();
        bad = bad.Better({V(good ? 0 : 1), good ? of.n : i});
      }
      return bad;
    });
    team.Phase([&](int thread) {
      if (thread == 0 && first.value > V(0)) of.info[matrix] = first.index + 1;
    });
  }
};

template <class E>
struct FinishFactor {
  CholeskyOperands<E> of;

  __device__ void operator()(int64_t place) const {
    const int64_t n = of.n, i = place / n % n, j = place % n;
    if (of.part.lower ? j > i : j < i) {
      StoreGlobal<E>(E{}, of.factor + place);
    } else if (of.info[place / (n * n)] != 0) {
      StoreGlobal<E>(NaN<E>(), of.factor + place);
    }
  }
};

template <class T>
void VendorCholesky(cudaStream_t stream, Scratch& scratch, int64_t batch, T* factor,
                    const CholeskyOperands<Element<T>>& of) {
  using E = Element<T>;
  const LentSolver lent(stream);
  const vendor::Solver solver = lent.get().solver;
  const int n = of.n;
  const int64_t size = static_cast<int64_t>(n) * n;
  const auto uplo = of.part.lower ? vendor::kUpper : vendor::kLower;
  ForEach(stream, batch * size, CopyTriangle<E>{of});
  if (UseBatchedRoutine(batch, n)) {
    T** const pointers = MakePointers(stream, scratch, factor, size, batch);
    vendor::PotrfBatched(solver, uplo, n, pointers, n, of.info, ToInt(batch));
  } else {
    const int work_size = vendor::PotrfWork(solver, uplo, n, factor, n);
    T* const work = scratch.Take<T>(work_size);
    for (int64_t i = 0; i < batch; ++i) {
      vendor::Potrf(solver, uplo, n, factor + i * size, n, work, work_size, of.info + i);
    }
  }
  LaunchTeams(stream, CheckDiagonal<E>{of}, batch, 32, Slice(sizeof(T)));
  ForEach(stream, batch * size, FinishFactor<E>{of});
}

ffi::Error Cholesky(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                    ffi::Result<ffi::AnyBuffer> factor, ffi::Result<ffi::AnyBuffer> info,
                    bool lower, bool symmetrize) {
  return Guard("linalg_cholesky", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows, size = shape.size();
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      using E = Element<T>;
      using V = RealElement<E>;
      T* const factor_data = Elements<T>(factor, batch * size, "the factor");
      const CholeskyOperands<E> of{AsElements(Elements<T>(a, batch * size, "a")),
                                   AsElements(factor_data),
                                   Elements<int32_t>(info, batch, "info"),
                                   ToInt(n),
                                   {lower, symmetrize}};
      if (batch == 0) return;
      Slice slice(sizeof(V));
      if (size * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
        const Staged matrix(size, size, slice.Take<E>(size));
        const Staged failed(1, 1, slice.Take<V>(1));
        LaunchAlone(stream, SmallCholesky<E>{of, matrix, failed}, batch, slice);
      } else if (n <= kTeamCholesky) {
        const int ld = of.n | 1;
        slice.Take<E>(n * ld);
        LaunchTeams(stream, TeamCholesky<E>{of, ld}, batch, TeamSize(n), slice);
      } else {
        Scratch scratch(allocator);
        VendorCholesky<T>(stream, scratch, batch, factor_data, of);
      }
    });
  });
}

ffi::Error CholeskySolve(cudaStream_t stream, ffi::ScratchAllocator allocator,
                         ffi::AnyBuffer factor, ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> x,
                         bool lower) {
  return Guard("linalg_cholesky_solve", [&] {
    Scratch scratch(allocator);
    const Substitution substitution{.with = Substitution::With::kCholesky, .lower = lower};
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      Substitute(stream, scratch, substitution, ReadSystems<T>(factor, b, x, true));
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_cholesky, linalg::cuda::Cholesky);
LINALG_HANDLER(linalg_cholesky_solve, linalg::cuda::CholeskySolve);
